//! Asks questions of servers at the terminal: forms, field by field, and URLs to open.
//!
//! Without a terminal, or with `--no-input`, every question is declined.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction, JsonObject};
use mcpvisor::{Callbacks, Form, OpenUrl};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::field::Field;
use super::keyboard::{Keyboard, Keys};
use crate::browser;
use crate::output::progress::SharedBar;
use crate::output::{TextFormat, paint, printable, quote_server_line};

/// Invalid answers to one field before the form is declined.
const MAX_TRIES: u32 = 5;

/// Declines the form.
const DECLINE: &str = "!";

/// Asks one question at a time.
#[derive(Debug, Clone)]
pub(crate) struct Prompter {
    bar: SharedBar,
    enabled: bool,
    turn: Arc<Mutex<()>>,
    keyboard: Keyboard,
}

/// A question of a server.
enum Question {
    Form(String, Vec<Field>),
    Url(String, String),
}

/// The result of a question.
enum Answer {
    Accepted(JsonObject),
    Declined,
    /// The terminal is gone.
    Gone,
}

impl Prompter {
    /// `allowed` is false with `--no-input`.
    pub(crate) fn new(bar: &SharedBar, allowed: bool) -> Self {
        Self {
            bar: bar.clone(),
            enabled: allowed && io::stdin().is_terminal() && io::stderr().is_terminal(),
            turn: Arc::default(),
            keyboard: Keyboard::default(),
        }
    }

    /// Whether questions are asked rather than declined.
    pub(crate) fn can_ask(&self) -> bool {
        self.enabled
    }

    /// The callbacks of a fleet.
    pub(crate) fn callbacks(&self) -> Callbacks {
        let (forms, urls) = (self.clone(), self.clone());
        Callbacks::new()
            .elicitation_form(move |ask| {
                let prompter = forms.clone();
                async move { Ok(prompter.form(ask.server.to_string(), ask.params).await) }
            })
            .elicitation_url(move |ask| {
                let prompter = urls.clone();
                async move { Ok(prompter.url(ask.server.to_string(), ask.params).await) }
            })
    }

    async fn form(&self, server: String, form: Form) -> ElicitResult {
        let question = Question::Form(form.message.clone(), fields(&form));
        match self.ask(&server, question).await {
            Answer::Accepted(content) => {
                let content = form.with_defaults(content);
                ElicitResult::new(ElicitationAction::Accept).with_content(content.into())
            }
            Answer::Declined => ElicitResult::new(ElicitationAction::Decline),
            Answer::Gone => ElicitResult::new(ElicitationAction::Cancel),
        }
    }

    async fn url(&self, server: String, open: OpenUrl) -> ElicitResult {
        let question = Question::Url(open.message, open.url);
        ElicitResult::new(match self.ask(&server, question).await {
            Answer::Accepted(_) => ElicitationAction::Accept,
            Answer::Declined => ElicitationAction::Decline,
            Answer::Gone => ElicitationAction::Cancel,
        })
    }

    /// Asks when it is this question's turn, with the progress bar hidden. Dropping the future
    /// withdraws the question: later input does not answer it.
    async fn ask(&self, server: &str, question: Question) -> Answer {
        if !self.enabled {
            tracing::info!(server, "declined a question: no terminal, or --no-input");
            return Answer::Declined;
        }
        let mut open = OpenQuestion::begin(self).await;
        let mut keys = self.keyboard.begin();
        let answer = match &question {
            Question::Form(message, fields) => ask_form(&mut keys, server, message, fields).await,
            Question::Url(message, url) => ask_url(&mut keys, server, message, url).await,
        };
        open.answered = true;
        answer
    }
}

/// The question on the terminal.
struct OpenQuestion {
    bar: SharedBar,
    answered: bool,
    /// Dropped last, so that the next question comes after all output of this one.
    _turn: OwnedMutexGuard<()>,
}

impl OpenQuestion {
    async fn begin(prompter: &Prompter) -> Self {
        let turn = Arc::clone(&prompter.turn).lock_owned().await;
        prompter.bar.pause();
        Self {
            bar: prompter.bar.clone(),
            answered: false,
            _turn: turn,
        }
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if !self.answered {
            print("\n  question withdrawn\n");
        }
        self.bar.resume();
    }
}

fn fields(form: &Form) -> Vec<Field> {
    let required = form.schema.required.clone().unwrap_or_default();
    let mut fields = Vec::new();
    for (name, schema) in &form.schema.properties {
        let schema = serde_json::to_value(schema).unwrap_or_default();
        fields.push(Field::new(name, schema, required.contains(name)));
    }
    if let Some(order) = &form.schema.property_order {
        let place = |name: &str| order.iter().position(|known| known == name);
        fields.sort_by_key(|field| place(field.name()).unwrap_or(usize::MAX));
    }
    fields
}

pub(super) fn print(text: &str) {
    let _ = write!(io::stderr(), "{text}");
    let _ = io::stderr().flush();
}

/// Prints a line of the server, marked as such.
fn quote(line: &str) {
    print(&quote_server_line(line, TextFormat::of_stderr()));
}

/// Prints who asks, and the message.
fn introduce(server: &str, message: &str) {
    let who = paint(TextFormat::of_stderr().color, "1", &printable(server));
    print(&format!("{who} asks:\n"));
    message.lines().for_each(quote);
}

async fn ask_form(keys: &mut Keys, server: &str, message: &str, fields: &[Field]) -> Answer {
    introduce(server, message);
    print(&format!("  ({DECLINE} declines)\n"));
    let mut content = JsonObject::new();
    for field in fields {
        field.description().iter().for_each(|line| quote(line));
        print(&format!("  {}\n", field.expected()));
        let mut tries = 0;
        loop {
            print("  > ");
            let Some(answer) = keys.line().await else {
                return Answer::Gone;
            };
            if answer.trim() == DECLINE || tries == MAX_TRIES {
                return Answer::Declined;
            }
            match field.parse(&answer) {
                Ok(Some(value)) => {
                    content.insert(field.name().to_owned(), value);
                    break;
                }
                Ok(None) => break,
                Err(problem) => print(&format!("  {}\n", printable(&problem))),
            }
            tries += 1;
        }
    }
    if fields.is_empty() && !confirmed(keys, "  Agree?").await {
        return Answer::Declined;
    }
    Answer::Accepted(content)
}

async fn ask_url(keys: &mut Keys, server: &str, message: &str, url: &str) -> Answer {
    introduce(server, message);
    quote(url);
    let web = ["https://", "http://"];
    let harmless = printable(url) == url && !url.contains(char::is_whitespace);
    if !harmless || !web.iter().any(|scheme| url.starts_with(scheme)) {
        print("  not a web address; not opened\n");
        return Answer::Declined;
    }
    if !confirmed(keys, "  Open it in the browser?").await {
        return Answer::Declined;
    }
    if !browser::open(url) {
        print("  cannot start a browser; open it yourself\n");
    }
    Answer::Accepted(JsonObject::new())
}

/// Asks for confirmation; the default is no.
async fn confirmed(keys: &mut Keys, question: &str) -> bool {
    print(&format!("{question} [y/N] "));
    let answer = keys.line().await;
    answer.is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
