//! What the screen shows, and what keys do to it.
//!
//! Pure: whoever has news gives it as a method call, whoever draws reads the fields.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::keys::Key;
use super::server_row::{Latency, Row};

/// Events that are kept for the detail view and for the story.
const MAX_EVENTS: usize = 500;

/// What a filter may be long.
const MAX_FILTER: usize = 64;

/// How far the page keys move.
const PAGE: usize = 10;

/// A command of the person at the keys, which the loop carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScreenCommand {
    /// Leave; `interrupted` when it was Ctrl-C.
    Quit {
        interrupted: bool,
    },
    Reconnect(String),
    Enable(String),
    Disable(String),
}

/// What is in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    List,
    /// Typing a filter.
    Filter,
    /// One server alone.
    Detail,
    Help,
}

/// The order of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    #[default]
    Name,
    /// Those in trouble first.
    State,
    /// The busiest first.
    Calls,
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Fault,
    Title,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoryLine {
    /// Since the screen began.
    pub(crate) at: Duration,
    /// A server, or whoever did it.
    pub(crate) who: String,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// All that is shown.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) title: String,
    /// Whether the keys may change the fleet.
    pub(super) controls: bool,
    /// Whether the events are a story that is shown beside the table.
    pub(super) story: bool,
    pub(super) mode: Mode,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) selected: Option<String>,
    /// Lines that the detail view is scrolled down.
    pub(super) scroll: usize,
    pub(super) events: VecDeque<StoryLine>,
    /// The answer to the last command.
    pub(super) message: String,
    /// Of the server in the detail view.
    pub(super) tools: Vec<String>,
    pub(super) stderr: String,
    rows: Vec<Row>,
    latency: BTreeMap<String, Latency>,
}

impl Model {
    pub(super) fn new(title: &str, controls: bool, story: bool) -> Self {
        Self {
            title: title.to_owned(),
            controls,
            story,
            ..Self::default()
        }
    }

    /// The present state of all servers.
    pub(super) fn statuses(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        self.keep_selection();
    }

    /// A round trip to a server, or none.
    pub(super) fn measured(&mut self, server: &str, sample: Option<Duration>) {
        self.latency
            .entry(server.to_owned())
            .or_default()
            .add(sample);
    }

    pub(super) fn happened(&mut self, told: StoryLine) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(told);
    }

    /// What became of a command.
    pub(super) fn message(&mut self, text: String) {
        self.message = text;
    }

    /// The round trips to a server.
    pub(super) fn latency(&self, server: &str) -> String {
        self.latency
            .get(server)
            .map_or_else(String::new, Latency::shown)
    }

    pub(super) fn all(&self) -> &[Row] {
        &self.rows
    }

    /// The servers that the filter leaves, in order.
    pub(super) fn visible(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let fits =
            |row: &&Row| row.name.to_lowercase().contains(&wanted) || row.state.contains(&wanted);
        let mut rows: Vec<&Row> = self.rows.iter().filter(fits).collect();
        match self.order {
            Order::Name => rows.sort_by(|one, other| one.name.cmp(&other.name)),
            Order::State => rows.sort_by_key(|row| (trouble(&row.state), row.name.clone())),
            Order::Calls => rows.sort_by_key(|row| {
                (
                    std::cmp::Reverse(row.in_flight + row.waiting),
                    row.name.clone(),
                )
            }),
        }
        rows
    }

    /// The place of the selected server among the visible ones.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        self.visible().iter().position(|row| row.name == selected)
    }

    /// The server in the detail view, or under the cursor.
    pub(super) fn current(&self) -> Option<&Row> {
        let selected = self.selected.as_deref()?;
        self.rows.iter().find(|row| row.name == selected)
    }

    /// Takes a key, and says what it commands of the fleet.
    pub(super) fn key(&mut self, key: Key) -> Option<ScreenCommand> {
        if key == Key::Interrupt {
            return Some(ScreenCommand::Quit { interrupted: true });
        }
        match self.mode {
            Mode::Filter => {
                self.key_of_filter(key);
                None
            }
            Mode::Help => {
                self.mode = Mode::List;
                None
            }
            Mode::List => self.key_of_list(key),
            Mode::Detail => self.key_of_detail(key),
        }
    }

    fn key_of_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) if self.filter.len() < MAX_FILTER => self.filter.push(c),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.mode = Mode::List,
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            _ => {}
        }
        self.keep_selection();
    }

    fn key_of_list(&mut self, key: Key) -> Option<ScreenCommand> {
        let last = self.visible().len().saturating_sub(1);
        let at = self.position().unwrap_or(0);
        match key {
            Key::Char('q') => return Some(ScreenCommand::Quit { interrupted: false }),
            Key::Up | Key::Char('k') => self.select(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select((at + 1).min(last)),
            Key::PageUp => self.select(at.saturating_sub(PAGE)),
            Key::PageDown => self.select((at + PAGE).min(last)),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(last),
            Key::Enter if self.current().is_some() => {
                self.mode = Mode::Detail;
                self.scroll = 0;
            }
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Escape => self.filter.clear(),
            Key::Char('s') => {
                self.order = match self.order {
                    Order::Name => Order::State,
                    Order::State => Order::Calls,
                    Order::Calls => Order::Name,
                };
            }
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            key => return self.control(key),
        }
        None
    }

    fn key_of_detail(&mut self, key: Key) -> Option<ScreenCommand> {
        match key {
            Key::Char('q') | Key::Escape | Key::Enter | Key::Backspace => self.mode = Mode::List,
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            Key::PageDown => self.scroll += PAGE,
            Key::Home => self.scroll = 0,
            key => return self.control(key),
        }
        None
    }

    /// The keys that change the fleet.
    fn control(&mut self, key: Key) -> Option<ScreenCommand> {
        let name = self.current().map(|row| row.name.clone())?;
        let (command, doing) = match key {
            _ if !self.controls => return None,
            Key::Char('r') => (ScreenCommand::Reconnect(name.clone()), "reconnecting"),
            Key::Char('e') => (ScreenCommand::Enable(name.clone()), "enabling"),
            Key::Char('d') => (ScreenCommand::Disable(name.clone()), "disabling"),
            _ => return None,
        };
        self.message = format!("{doing} {name} …");
        Some(command)
    }

    fn select(&mut self, position: usize) {
        self.selected = self.visible().get(position).map(|row| row.name.clone());
    }

    /// The cursor stays on its server; when that is hidden, it goes to the first one.
    fn keep_selection(&mut self) {
        if self.position().is_none() {
            self.select(0);
            if self.mode == Mode::Detail {
                self.mode = Mode::List;
            }
        }
    }
}

/// How urgently a state asks for a person: those in trouble come first.
fn trouble(state: &str) -> u8 {
    match state {
        "permanently_failed" => 0,
        "disconnected" => 1,
        "reconnecting" => 2,
        "connecting" => 3,
        "disabling" => 4,
        "connected" => 5,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: &str, in_flight: usize) -> Row {
        Row {
            name: name.to_owned(),
            state: state.to_owned(),
            in_flight,
            ..Row::default()
        }
    }

    fn model() -> Model {
        let mut model = Model::new("fleet", true, false);
        model.statuses(vec![
            row("alpha", "connected", 0),
            row("beta", "reconnecting", 0),
            row("gamma", "connected", 5),
        ]);
        model
    }

    fn names(model: &Model) -> Vec<&str> {
        model
            .visible()
            .iter()
            .map(|row| row.name.as_str())
            .collect()
    }

    fn keys(model: &mut Model, keys: &[Key]) -> Option<ScreenCommand> {
        let mut command = None;
        for key in keys {
            command = model.key(*key);
        }
        command
    }

    #[test]
    fn the_cursor_moves_and_stays_within_the_list() {
        let mut model = model();
        assert_eq!(model.selected.as_deref(), Some("alpha"));
        keys(&mut model, &[Key::Down, Key::Down, Key::Down]);
        assert_eq!(model.selected.as_deref(), Some("gamma"));
        keys(&mut model, &[Key::PageUp, Key::Up]);
        assert_eq!(model.selected.as_deref(), Some("alpha"));
        keys(&mut model, &[Key::End]);
        assert_eq!(model.position(), Some(2));
    }

    #[test]
    fn the_cursor_stays_on_its_server_when_the_order_changes() {
        let mut model = model();
        keys(&mut model, &[Key::Down, Key::Char('s')]);
        assert_eq!(names(&model), ["beta", "alpha", "gamma"]);
        assert_eq!(
            (model.selected.as_deref(), model.position()),
            (Some("beta"), Some(0))
        );
        keys(&mut model, &[Key::Char('s')]);
        assert_eq!(names(&model), ["gamma", "alpha", "beta"]);
    }

    #[test]
    fn a_filter_hides_the_others_and_escape_shows_them_again() {
        let mut model = model();
        keys(
            &mut model,
            &[
                Key::Char('/'),
                Key::Char('T'),
                Key::Char('q'),
                Key::Backspace,
            ],
        );
        assert_eq!(
            names(&model),
            ["alpha", "beta", "gamma"],
            "connected has a t, too"
        );
        keys(
            &mut model,
            &[Key::Backspace, Key::Char('b'), Key::Char('e'), Key::Enter],
        );
        assert_eq!((names(&model), model.mode), (vec!["beta"], Mode::List));
        assert_eq!(model.selected.as_deref(), Some("beta"));
        keys(&mut model, &[Key::Escape]);
        assert_eq!(names(&model).len(), 3);
    }

    #[test]
    fn wishes_are_about_the_server_under_the_cursor() {
        let mut model = model();
        keys(&mut model, &[Key::Down]);
        let command = |model: &mut Model, c| model.key(Key::Char(c));
        assert_eq!(
            command(&mut model, 'r'),
            Some(ScreenCommand::Reconnect("beta".into()))
        );
        assert_eq!(
            command(&mut model, 'e'),
            Some(ScreenCommand::Enable("beta".into()))
        );
        assert_eq!(
            command(&mut model, 'd'),
            Some(ScreenCommand::Disable("beta".into()))
        );
        assert_eq!(model.message, "disabling beta …");
        model.controls = false;
        assert_eq!(command(&mut model, 'd'), None);
    }

    #[test]
    fn q_leaves_the_detail_view_first_and_an_interrupt_leaves_everything() {
        let mut model = model();
        assert_eq!(keys(&mut model, &[Key::Enter, Key::Char('q')]), None);
        assert_eq!(model.mode, Mode::List);
        assert_eq!(
            keys(&mut model, &[Key::Char('q')]),
            Some(ScreenCommand::Quit { interrupted: false })
        );
        assert_eq!(
            keys(&mut model, &[Key::Char('/'), Key::Interrupt]),
            Some(ScreenCommand::Quit { interrupted: true })
        );
    }

    #[test]
    fn a_server_that_is_gone_loses_the_cursor_and_its_detail_view() {
        let mut model = model();
        keys(&mut model, &[Key::Down, Key::Enter]);
        model.statuses(vec![row("alpha", "connected", 0)]);
        assert_eq!(
            (model.mode, model.selected.as_deref()),
            (Mode::List, Some("alpha"))
        );
        model.statuses(Vec::new());
        assert_eq!(model.selected, None);
        assert_eq!(
            keys(&mut model, &[Key::Down, Key::Enter, Key::Char('r')]),
            None
        );
    }

    #[test]
    fn events_are_bounded() {
        let mut model = model();
        for number in 0..MAX_EVENTS + 10 {
            model.happened(StoryLine {
                at: Duration::ZERO,
                who: "alpha".to_owned(),
                text: number.to_string(),
                tone: Tone::Plain,
            });
        }
        assert_eq!(model.events.len(), MAX_EVENTS);
        assert_eq!(model.events[0].text, "10");
    }
}
