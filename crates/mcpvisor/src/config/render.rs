//! Renders config problems for people: the message and the marked source line.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::location::{Location, harmless};
use super::{ConfigError, ConfigProblem, Severity};

impl ConfigProblem {
    /// The problem with its source line, without colours. Possible secrets are `***`, and
    /// characters that a terminal would interpret are `\u{fffd}`.
    ///
    /// ```
    /// use mcpvisor::Config;
    ///
    /// let text = r#"{ "mcpServers": { "a": { "command": "x", "comand": "y" } } }"#;
    /// let config = Config::from_json(text, |_| None)?;
    /// println!("{}", config.problems[0].render());
    /// # Ok::<(), mcpvisor::config::ConfigError>(())
    /// ```
    pub fn render(&self) -> String {
        self.render_by(&Renderer::plain())
    }

    /// Like [`render`](Self::render), with colours for a terminal.
    pub fn render_colored(&self) -> String {
        self.render_by(&Renderer::styled())
    }

    fn render_by(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Warning | Severity::Disabled => Level::WARNING,
            Severity::Excluded => Level::ERROR,
        };
        render(renderer, level, &self.to_string(), self.location.as_ref())
    }
}

impl ConfigError {
    /// The error with its source line, without colours. Possible secrets are `***`, and characters
    /// that a terminal would interpret are `\u{fffd}`.
    pub fn render(&self) -> String {
        self.render_by(&Renderer::plain())
    }

    /// Like [`render`](Self::render), with colours for a terminal.
    pub fn render_colored(&self) -> String {
        self.render_by(&Renderer::styled())
    }

    fn render_by(&self, renderer: &Renderer) -> String {
        render(renderer, Level::ERROR, &self.to_string(), self.location())
    }
}

fn render(renderer: &Renderer, level: Level<'_>, title: &str, place: Option<&Location>) -> String {
    // It contains keys and names of the file, which may be untrusted.
    let title = harmless(title);
    let title = level.primary_title(&title);
    let Some(place) = place else {
        return renderer.render(&[Group::with_title(title)]);
    };
    // Redaction shifts the columns of the line, so the title states the position instead of the
    // snippet.
    let snippet = Snippet::source(place.source.as_str())
        .line_start(place.line)
        .annotation(AnnotationKind::Primary.span(place.mark.clone()));
    renderer.render(&[title.element(snippet)])
}
