//! What servers ask of the person at the terminal: forms, field by field, and addresses to open.
//!
//! Without a terminal, or when the person wants no questions, everything is declined.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction, JsonObject};
use mcpvisor::{Callbacks, Form, OpenUrl};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::field::Field;
use super::keyboard::{Keyboard, Keys};
use crate::output::progress::SharedBar;
use crate::output::{TextFormat, paint, printable, quote_server_line};

/// Whoever does not find an answer in this many tries is asked no more.
const MAX_TRIES: u32 = 5;

/// Ends the form.
const DECLINE: &str = "!";

/// The person who is asked, one question at a time.
#[derive(Debug, Clone)]
pub(crate) struct Prompter {
    bar: SharedBar,
    there: bool,
    turn: Arc<Mutex<()>>,
    keyboard: Keyboard,
}

/// What a server wants of the person.
enum Question {
    Form(String, Vec<Field>),
    Url(String, String),
}

/// What became of a question.
enum Answered {
    Accepted(JsonObject),
    Declined,
    /// The terminal is gone.
    Gone,
}

impl Prompter {
    /// `wanted` is false when the person asked not to be asked.
    pub(crate) fn new(bar: &SharedBar, wanted: bool) -> Self {
        Self {
            bar: bar.clone(),
            there: wanted && io::stdin().is_terminal() && io::stderr().is_terminal(),
            turn: Arc::default(),
            keyboard: Keyboard::default(),
        }
    }

    /// Whether someone can answer, however long it takes.
    pub(crate) fn can_ask(&self) -> bool {
        self.there
    }

    /// What the servers of a fleet may ask.
    pub(crate) fn callbacks(&self) -> Callbacks {
        let (forms, urls) = (self.clone(), self.clone());
        Callbacks::new()
            .elicitation_form(move |ask| {
                let person = forms.clone();
                async move { Ok(person.form(ask.server.to_string(), ask.params).await) }
            })
            .elicitation_url(move |ask| {
                let person = urls.clone();
                async move { Ok(person.url(ask.server.to_string(), ask.params).await) }
            })
    }

    async fn form(&self, server: String, form: Form) -> ElicitResult {
        let question = Question::Form(form.message.clone(), fields(&form));
        match self.ask(&server, question).await {
            Answered::Accepted(content) => {
                let content = form.with_defaults(content);
                ElicitResult::new(ElicitationAction::Accept).with_content(content.into())
            }
            Answered::Declined => ElicitResult::new(ElicitationAction::Decline),
            Answered::Gone => ElicitResult::new(ElicitationAction::Cancel),
        }
    }

    async fn url(&self, server: String, open: OpenUrl) -> ElicitResult {
        let question = Question::Url(open.message, open.url);
        ElicitResult::new(match self.ask(&server, question).await {
            Answered::Accepted(_) => ElicitationAction::Accept,
            Answered::Declined => ElicitationAction::Decline,
            Answered::Gone => ElicitationAction::Cancel,
        })
    }

    /// Asks when it is this question's turn, with nothing else moving on the terminal. Whoever takes
    /// the question back drops this: nothing that is typed from then on is an answer to it.
    async fn ask(&self, server: &str, question: Question) -> Answered {
        if !self.there {
            tracing::info!("a question of the server's was declined: nobody can be asked");
            return Answered::Declined;
        }
        let mut asking = Asking::begin(self).await;
        let mut keys = self.keyboard.begin();
        let answered = match &question {
            Question::Form(message, fields) => ask_form(&mut keys, server, message, fields).await,
            Question::Url(message, url) => ask_url(&mut keys, server, message, url).await,
        };
        asking.answered = true;
        answered
    }
}

/// A question on the terminal.
struct Asking {
    bar: SharedBar,
    answered: bool,
    /// Given back last, so that the next question comes after all that is said of this one.
    _turn: OwnedMutexGuard<()>,
}

impl Asking {
    async fn begin(person: &Prompter) -> Self {
        let turn = Arc::clone(&person.turn).lock_owned().await;
        person.bar.pause();
        Self {
            bar: person.bar.clone(),
            answered: false,
            _turn: turn,
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.answered {
            say("\n  the question was taken back, and nothing is done about it\n");
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

pub(super) fn say(text: &str) {
    let _ = write!(io::stderr(), "{text}");
    let _ = io::stderr().flush();
}

/// Words of the server's, which are nobody's orders.
fn quote(line: &str) {
    say(&quote_server_line(line, TextFormat::of_stderr()));
}

/// Who asks, and what.
fn introduce(server: &str, message: &str) {
    let who = paint(TextFormat::of_stderr().color, "1", &printable(server));
    say(&format!("{who} asks:\n"));
    message.lines().for_each(quote);
}

async fn ask_form(keys: &mut Keys, server: &str, message: &str, fields: &[Field]) -> Answered {
    introduce(server, message);
    say(&format!("  ({DECLINE} declines)\n"));
    let mut content = JsonObject::new();
    for field in fields {
        field.described().iter().for_each(|line| quote(line));
        say(&format!("  {}\n", field.takes()));
        let mut tries = 0;
        loop {
            say("  > ");
            let Some(answer) = keys.line().await else {
                return Answered::Gone;
            };
            if answer.trim() == DECLINE || tries == MAX_TRIES {
                return Answered::Declined;
            }
            match field.read(&answer) {
                Ok(Some(value)) => {
                    content.insert(field.name().to_owned(), value);
                    break;
                }
                Ok(None) => break,
                Err(problem) => say(&format!("  {}\n", printable(&problem))),
            }
            tries += 1;
        }
    }
    if fields.is_empty() && !agreed(keys, "  agree?").await {
        return Answered::Declined;
    }
    Answered::Accepted(content)
}

async fn ask_url(keys: &mut Keys, server: &str, message: &str, url: &str) -> Answered {
    introduce(server, message);
    quote(url);
    let web = ["https://", "http://"];
    let harmless = printable(url) == url && !url.contains(char::is_whitespace);
    if !harmless || !web.iter().any(|scheme| url.starts_with(scheme)) {
        say("  that is no address of the web, so it is not opened\n");
        return Answered::Declined;
    }
    if !agreed(keys, "  open it in the browser?").await {
        return Answered::Declined;
    }
    if !open(url) {
        say("  it cannot be opened from here; open it by hand\n");
    }
    Answered::Accepted(JsonObject::new())
}

/// Only a yes is a yes.
async fn agreed(keys: &mut Keys, question: &str) -> bool {
    say(&format!("{question} [y/N] "));
    let answer = keys.line().await;
    answer.is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Hands an address to the browser, as an argument of its own: no shell reads it.
fn open(url: &str) -> bool {
    let program = match std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        Some(browser) => browser,
        None if cfg!(target_os = "macos") => "open".into(),
        None => "xdg-open".into(),
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // Nobody waits for a browser to be closed, but somebody has to reap it.
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
            true
        }
        Err(_) => false,
    }
}
