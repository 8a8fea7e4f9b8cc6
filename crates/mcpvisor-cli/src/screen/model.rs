//! The state of the screen, and the effect of keys.
//!
//! Pure: the event loop calls its methods, the view reads its fields.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use mcpvisor::{ServerStatus, StateName};

use super::keys::Key;
use super::server_row::Latency;
use crate::output::server_notes::instance_name;

/// Stored events; older ones are dropped.
const MAX_EVENTS: usize = 500;

/// Characters of a filter.
const MAX_FILTER: usize = 64;

/// Rows that a page key moves.
const PAGE: usize = 10;

/// A command of the user, which the event loop runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScreenCommand {
    /// `interrupted` for Ctrl-C.
    Quit {
        interrupted: bool,
    },
    Reconnect(String),
    Enable(String),
    Disable(String),
}

/// The active view.
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
    /// Failed ones first.
    State,
    /// The busiest first.
    Calls,
}

/// The tone of a line, which decides its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Fault,
    Title,
}

impl Tone {
    /// The tone of a server that entered this state.
    pub(crate) fn of_state(state: StateName) -> Self {
        match state {
            StateName::Connected => Self::Good,
            StateName::Reconnecting | StateName::Disconnected | StateName::PermanentlyFailed => {
                Self::Bad
            }
            StateName::Connecting
            | StateName::Disabling
            | StateName::Disabled
            | StateName::Sleeping => Self::Plain,
        }
    }
}

/// One event as a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoryLine {
    /// Time since the screen started.
    pub(crate) at: Duration,
    /// A server, or an agent of the demo.
    pub(crate) who: String,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) title: String,
    /// Whether keys may change the fleet.
    pub(super) controls: bool,
    /// Whether events are shown below the table.
    pub(super) story: bool,
    pub(super) mode: Mode,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) selected: Option<String>,
    /// Scroll offset of the detail view, in lines.
    pub(super) scroll: usize,
    pub(super) events: VecDeque<StoryLine>,
    /// The result of the last command.
    pub(super) message: String,
    /// Tools of the server in the detail view.
    pub(super) tools: Vec<String>,
    pub(super) stderr: String,
    rows: Vec<ServerStatus>,
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

    pub(super) fn set_rows(&mut self, rows: Vec<ServerStatus>) {
        self.rows = rows;
        self.keep_selection();
    }

    /// Adds a round trip to a server; `None` without an answer.
    pub(super) fn add_sample(&mut self, server: &str, sample: Option<Duration>) {
        self.latency
            .entry(server.to_owned())
            .or_default()
            .add(sample);
    }

    pub(super) fn add_line(&mut self, line: StoryLine) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }

    /// The latency of a server as text.
    pub(super) fn latency(&self, server: &str) -> String {
        self.latency
            .get(server)
            .map_or_else(String::new, Latency::shown)
    }

    pub(super) fn all(&self) -> &[ServerStatus] {
        &self.rows
    }

    /// The servers that match the filter, in order.
    pub(super) fn visible(&self) -> Vec<&ServerStatus> {
        let filter = self.filter.to_lowercase();
        let matches = |row: &&ServerStatus| {
            instance_name(row).to_lowercase().contains(&filter)
                || row.state.as_str().contains(&filter)
        };
        let mut rows: Vec<&ServerStatus> = self.rows.iter().filter(matches).collect();
        match self.order {
            Order::Name => rows.sort_by_key(|row| place(row)),
            Order::State => rows.sort_by_key(|row| (state_rank(row.state), place(row))),
            Order::Calls => {
                rows.sort_by_key(|row| (std::cmp::Reverse(row.in_flight + row.waiting), place(row)))
            }
        }
        rows
    }

    /// The position of the selected server among the visible ones.
    pub(super) fn position(&self) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        self.visible()
            .iter()
            .position(|row| instance_name(row) == selected)
    }

    /// The server in the detail view, or under the cursor.
    pub(super) fn current(&self) -> Option<&ServerStatus> {
        let selected = self.selected.as_deref()?;
        self.rows.iter().find(|row| instance_name(row) == selected)
    }

    /// Handles a key, and returns its command for the fleet.
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
        let name = self.current().map(|row| row.name.to_string())?;
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
        self.selected = self.visible().get(position).map(|row| instance_name(row));
    }

    /// Keeps the cursor on its server, or moves it to the first one if that is hidden.
    fn keep_selection(&mut self) {
        if self.position().is_none() {
            self.select(0);
            if self.mode == Mode::Detail {
                self.mode = Mode::List;
            }
        }
    }
}

/// The place of a row among those of all servers.
fn place(row: &ServerStatus) -> (String, u32) {
    (row.name.to_string(), row.instance)
}

/// The sort order of states: failed ones first.
fn state_rank(state: StateName) -> u8 {
    match state {
        StateName::PermanentlyFailed => 0,
        StateName::Disconnected => 1,
        StateName::Reconnecting => 2,
        StateName::Connecting => 3,
        StateName::Disabling => 4,
        StateName::Connected => 5,
        StateName::Disabled | StateName::Sleeping => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::server_row::status;

    fn row(name: &str, state: StateName, in_flight: usize) -> ServerStatus {
        let mut status = status(name, state);
        status.in_flight = in_flight;
        status
    }

    fn model() -> Model {
        let mut model = Model::new("fleet", true, false);
        model.set_rows(vec![
            row("alpha", StateName::Connected, 0),
            row("beta", StateName::Reconnecting, 0),
            row("gamma", StateName::Connected, 5),
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
    fn commands_apply_to_the_server_under_the_cursor() {
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
    fn removing_a_server_moves_the_cursor_and_closes_its_detail_view() {
        let mut model = model();
        keys(&mut model, &[Key::Down, Key::Enter]);
        model.set_rows(vec![row("alpha", StateName::Connected, 0)]);
        assert_eq!(
            (model.mode, model.selected.as_deref()),
            (Mode::List, Some("alpha"))
        );
        model.set_rows(Vec::new());
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
            model.add_line(StoryLine {
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
