//! What servers ask of the person at the terminal: forms, field by field, and addresses to open.
//!
//! Without a terminal, or when the person wants no questions, everything is declined.

mod field;

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use mcpvisor::rmcp::model::{ElicitResult, ElicitationAction, JsonObject};
use mcpvisor::{Callbacks, Form, OpenUrl};
use tokio::sync::Mutex;

use crate::output::{Tty, paint, printable, printable_lines};
use crate::progress::Voice;
use field::Field;

/// Whoever does not find an answer in this many tries is asked no more.
const MAX_TRIES: u32 = 5;

/// Ends the form.
const DECLINE: &str = "!";

/// The person who is asked, one question at a time.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    voice: Voice,
    there: bool,
    turn: Arc<Mutex<()>>,
}

/// What became of a question.
enum Answered {
    Accepted(JsonObject),
    Declined,
    /// The terminal is gone.
    Gone,
}

impl Person {
    /// `wanted` is false when the person asked not to be asked.
    pub(crate) fn new(voice: &Voice, wanted: bool) -> Self {
        Self {
            voice: voice.clone(),
            there: wanted && io::stdin().is_terminal() && io::stderr().is_terminal(),
            turn: Arc::default(),
        }
    }

    /// Whether someone can answer, however long it takes.
    pub(crate) fn is_there(&self) -> bool {
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
        let fields = fields(&form);
        let defaults = form.clone();
        let asked = move || ask_form(&server, &form.message, &fields);
        match self.ask(asked).await {
            Answered::Accepted(content) => {
                let content = defaults.with_defaults(content);
                ElicitResult::new(ElicitationAction::Accept).with_content(content.into())
            }
            Answered::Declined => ElicitResult::new(ElicitationAction::Decline),
            Answered::Gone => ElicitResult::new(ElicitationAction::Cancel),
        }
    }

    async fn url(&self, server: String, open: OpenUrl) -> ElicitResult {
        let asked = move || ask_url(&server, &open.message, &open.url);
        ElicitResult::new(match self.ask(asked).await {
            Answered::Accepted(_) => ElicitationAction::Accept,
            Answered::Declined => ElicitationAction::Decline,
            Answered::Gone => ElicitationAction::Cancel,
        })
    }

    /// Asks when it is this question's turn, with nothing else moving on the terminal.
    async fn ask(&self, question: impl FnOnce() -> Answered + Send + 'static) -> Answered {
        if !self.there {
            tracing::info!("a question of the server's was declined: nobody can be asked");
            return Answered::Declined;
        }
        let _turn = self.turn.lock().await;
        self.voice.pause();
        // A terminal blocks, and it may take the person minutes.
        let answered = tokio::task::spawn_blocking(question).await;
        self.voice.resume();
        answered.unwrap_or(Answered::Gone)
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

fn say(text: &str) {
    let _ = write!(io::stderr(), "{text}");
    let _ = io::stderr().flush();
}

/// The line that the person typed; nothing when the terminal is gone.
fn line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).unwrap_or(0);
    (read > 0).then_some(line)
}

/// Who asks, and what: in the server's words, which are nobody's orders.
fn introduce(server: &str, message: &str) {
    let who = paint(Tty::of_stderr(), "1", &printable(server));
    let message = printable_lines(message).replace('\n', "\n  ");
    say(&format!("{who} asks: {message}\n"));
}

fn ask_form(server: &str, message: &str, fields: &[Field]) -> Answered {
    introduce(server, message);
    say(&format!("  ({DECLINE} declines)\n"));
    let mut content = JsonObject::new();
    for field in fields {
        say(&format!("  {}\n", printable_lines(&field.question())));
        let mut tries = 0;
        loop {
            say("  > ");
            let Some(answer) = line() else {
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
    if fields.is_empty() && !agreed("  agree?") {
        return Answered::Declined;
    }
    Answered::Accepted(content)
}

fn ask_url(server: &str, message: &str, url: &str) -> Answered {
    introduce(server, message);
    say(&format!("  {}\n", printable(url)));
    let web = ["https://", "http://"];
    if !web.iter().any(|scheme| url.starts_with(scheme)) {
        say("  that is no address of the web, so it is not opened\n");
        return Answered::Declined;
    }
    if !agreed("  open it in the browser?") {
        return Answered::Declined;
    }
    if !open(url) {
        say("  it cannot be opened from here; open it by hand\n");
    }
    Answered::Accepted(JsonObject::new())
}

/// Only a yes is a yes.
fn agreed(question: &str) -> bool {
    say(&format!("{question} [y/N] "));
    line().is_some_and(|answer| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
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
