//! Problems of a config as a person reads them: the message, and the line with what is meant.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::location::{Location, harmless};
use super::{ConfigError, ConfigProblem, Severity};

impl ConfigProblem {
    /// The problem with the line that it is about, without colours. Values that could be secrets
    /// are `***`, and what a terminal would obey is `\u{fffd}`.
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

    /// The same, with colours for a terminal.
    pub fn render_colored(&self) -> String {
        self.render_by(&Renderer::styled())
    }

    fn render_by(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Warning | Severity::Off => Level::WARNING,
            Severity::LeftOut => Level::ERROR,
        };
        render(renderer, level, &self.to_string(), self.location.as_ref())
    }
}

impl ConfigError {
    /// The error with the line that it is about, without colours. Values that could be secrets are
    /// `***`, and what a terminal would obey is `\u{fffd}`.
    pub fn render(&self) -> String {
        render(
            &Renderer::plain(),
            Level::ERROR,
            &self.to_string(),
            self.location(),
        )
    }

    /// The same, with colours for a terminal.
    pub fn render_colored(&self) -> String {
        render(
            &Renderer::styled(),
            Level::ERROR,
            &self.to_string(),
            self.location(),
        )
    }
}

fn render(renderer: &Renderer, level: Level<'_>, title: &str, place: Option<&Location>) -> String {
    // Keys and names of the file are in it, and a file may be a stranger's.
    let title = harmless(title);
    let title = level.primary_title(&title);
    let Some(place) = place else {
        return renderer.render(&[Group::with_title(title)]);
    };
    // The line differs from that of the file in what is hidden, so the title says where it is, and
    // not the snippet, which would count columns in this one.
    let snippet = Snippet::source(place.source.as_str())
        .line_start(place.line)
        .annotation(AnnotationKind::Primary.span(place.mark.clone()));
    renderer.render(&[title.element(snippet)])
}
