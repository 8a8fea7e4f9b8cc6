//! Draws the model. Text of servers is made printable.

use std::collections::BTreeSet;
use std::time::Instant;

use mcpvisor::ServerStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Cell, Clear, Paragraph, Row as Cells, Table, TableState, Wrap,
};
use unicode_width::UnicodeWidthStr;

use super::model::{Mode, Model, Order, StoryLine, Tone};
use super::server_row::{attempts, attempts_in_words, calls, catalog};
use crate::output::server_notes::{self, Note, instance_name};
use crate::output::{ColorMode, counted, cut, printable, status_action};

/// Narrower screens show only names, states and errors.
const WIDE: u16 = 90;

/// The share of the screen for the story; the table gets the rest.
const STORY_PERCENT: u16 = 65;

/// Tools listed in the detail view.
const MAX_TOOLS: usize = 200;

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, color: ColorMode, now: Instant) {
    let paint = Paint(color);
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(model, paint), top);
    match model.mode {
        Mode::Detail => detail(frame, middle, model, paint, now),
        Mode::List | Mode::Filter | Mode::Help if model.story => {
            let [table, story] =
                Layout::vertical([Constraint::Fill(1), Constraint::Percentage(STORY_PERCENT)])
                    .areas(middle);
            list(frame, table, model, paint, now);
            story_pane(frame, story, model, paint);
        }
        Mode::List | Mode::Filter | Mode::Help => list(frame, middle, model, paint, now),
    }
    if model.mode == Mode::Help {
        help(frame, middle, model);
    }
    frame.render_widget(footer(model, paint), bottom);
}

/// Styles, which are empty in plain mode.
#[derive(Clone, Copy)]
struct Paint(ColorMode);

impl Paint {
    fn color(self, color: Color) -> Style {
        match self.0 {
            ColorMode::Colored => Style::new().fg(color),
            ColorMode::Plain => Style::new(),
        }
    }

    fn dim(self) -> Style {
        match self.0 {
            ColorMode::Colored => Style::new().add_modifier(Modifier::DIM),
            ColorMode::Plain => Style::new(),
        }
    }

    fn state(self, state: &str) -> Style {
        match state {
            "connected" => self.color(Color::Green),
            "connecting" | "reconnecting" | "disabling" => self.color(Color::Yellow),
            "disconnected" | "permanently_failed" => self.color(Color::Red),
            _ => self.dim(),
        }
    }

    fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => self.color(Color::Green),
            Tone::Bad => self.color(Color::Yellow),
            Tone::Fault => self.color(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Title => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

/// The title, and the number of servers in each state.
fn headline(model: &Model, paint: Paint) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(
        format!(" {}  ", printable(&model.title)),
        bold,
    )];
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for row in model.all() {
        match counts
            .iter_mut()
            .find(|(state, _)| *state == row.state.as_str())
        {
            Some((_, count)) => *count += 1,
            None => counts.push((row.state.as_str(), 1)),
        }
    }
    counts.sort_unstable();
    let names: BTreeSet<&str> = model.all().iter().map(|row| row.name.as_str()).collect();
    let servers = match names.len() {
        1 => "1 server:".to_owned(),
        count => format!("{count} servers:"),
    };
    spans.push(Span::raw(servers));
    for (number, (state, count)) in counts.into_iter().enumerate() {
        spans.push(Span::raw(if number == 0 { " " } else { ", " }));
        spans.push(Span::styled(format!("{count} {state}"), paint.state(state)));
    }
    Line::from(spans)
}

fn list(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint, now: Instant) {
    let wide = area.width >= WIDE;
    let visible = model.visible();
    let longest = visible
        .iter()
        .map(|row| instance_name(row).chars().count())
        .max();
    let name = u16::try_from(longest.unwrap_or(4).clamp(4, 30)).unwrap_or(30);
    let (header, widths): (Vec<&str>, Vec<Constraint>) = if wide {
        let columns = [
            ("NAME", Constraint::Length(name)),
            ("STATE", Constraint::Length(18)),
            ("GEN", Constraint::Length(4)),
            ("ATTEMPTS", Constraint::Length(15)),
            ("CALLS", Constraint::Length(6)),
            ("LATENCY", Constraint::Length(20)),
            ("TOOLS", Constraint::Length(5)),
            ("LAST ERROR", Constraint::Fill(1)),
        ];
        columns.into_iter().unzip()
    } else {
        let columns = [
            ("NAME", Constraint::Length(name)),
            ("STATE", Constraint::Length(18)),
            ("LAST ERROR", Constraint::Fill(1)),
        ];
        columns.into_iter().unzip()
    };
    let rows = visible
        .iter()
        .map(|row| cells(row, model, paint, now, wide));
    let table = Table::new(rows, widths)
        .header(Cells::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(model.position());
    frame.render_stateful_widget(table, area, &mut state);
}

fn cells(
    row: &ServerStatus,
    model: &Model,
    paint: Paint,
    now: Instant,
    wide: bool,
) -> Cells<'static> {
    let name = Cell::new(printable(&instance_name(row)));
    let state = Cell::new(row.state.as_str()).style(paint.state(row.state.as_str()));
    let error = Cell::new(printable(&last_error(row))).style(paint.dim());
    if !wide {
        return Cells::new([name, state, error]);
    }
    Cells::new([
        name,
        state,
        Cell::new(row.generation.to_string()),
        Cell::new(attempts(row, now)),
        Cell::new(calls(row)),
        Cell::new(model.latency(row.name.as_str())),
        Cell::new(catalog(row)),
        error,
    ])
}

/// The latest lines of the story.
fn story_pane(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint) {
    let block = Block::new().borders(Borders::TOP).title(" events ");
    let height = usize::from(block.inner(area).height);
    let width = usize::from(area.width);
    let skipped = model.events.len().saturating_sub(height);
    let lines: Vec<Line<'_>> = model
        .events
        .iter()
        .skip(skipped)
        .map(|event| line(event, paint, width))
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn line(event: &StoryLine, paint: Paint, width: usize) -> Line<'static> {
    let style = paint.tone(event.tone);
    if event.tone == Tone::Title {
        return Line::styled(cut(&printable(&event.text), width), style);
    }
    let before = format!(
        "{:>7.3} s  {:<9} ",
        event.at.as_secs_f64(),
        printable(&event.who)
    );
    let available = width.saturating_sub(before.width());
    Line::from(vec![
        Span::styled(before, paint.dim()),
        Span::styled(cut(&printable(&event.text), available), style),
    ])
}

fn detail(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint, now: Instant) {
    let Some(row) = model.current() else { return };
    let mut lines = facts(row, model, paint, now);
    let heading =
        |text: &'static str| Line::styled(text, Style::new().add_modifier(Modifier::BOLD));
    lines.push(Line::raw(""));
    lines.push(heading("events"));
    let name = instance_name(row);
    let block = Block::bordered().title(format!(" {} ", printable(&name)));
    let width = usize::from(block.inner(area).width);
    let events = model.events.iter().filter(|event| event.who == name);
    let events: Vec<Line<'_>> = events.map(|event| line(event, paint, width)).collect();
    let old = events.len().saturating_sub(10);
    lines.extend(events.into_iter().skip(old));
    lines.push(Line::raw(""));
    lines.push(heading("tools"));
    let shown = model
        .tools
        .iter()
        .take(MAX_TOOLS)
        .map(|tool| printable(tool));
    lines.push(Line::raw(shown.collect::<Vec<_>>().join(", ")));
    lines.push(Line::raw(""));
    lines.push(heading("stderr"));
    lines.extend(model.stderr.lines().map(|line| Line::raw(printable(line))));
    let most = lines.len().saturating_sub(1);
    let scroll = u16::try_from(model.scroll.min(most)).unwrap_or(u16::MAX);
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((scroll, 0))
        .block(block);
    frame.render_widget(text, area);
}

/// The facts of a server, one line each.
fn facts(row: &ServerStatus, model: &Model, paint: Paint, now: Instant) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut fact = |name: &'static str, value: String, style: Style| {
        if !value.is_empty() {
            lines.push(Line::from(vec![
                Span::raw(format!("{name:<12} ")),
                Span::styled(printable(&value), style),
            ]));
        }
    };
    let plain = Style::new();
    fact(
        "state",
        row.state.to_string(),
        paint.state(row.state.as_str()),
    );
    fact("connection", row.generation.to_string(), plain);
    fact("attempt", attempts_in_words(row, now), plain);
    fact(
        "calls",
        format!("{} in flight, {} queued", row.in_flight, row.waiting),
        plain,
    );
    fact("latency", model.latency(row.name.as_str()), plain);
    let stale = if row.stale { " (not confirmed)" } else { "" };
    let catalog = format!(
        "{}, {}, {}{stale}",
        counted(row.tools, "tool"),
        counted(row.prompts, "prompt"),
        counted(row.resources, "resource")
    );
    fact("catalog", catalog, plain);
    fact("transport", row.transport.to_owned(), plain);
    fact("protocol", row.protocol.clone().unwrap_or_default(), plain);
    let server = row.server.as_ref();
    let server = server.map(|it| format!("{} {}", it.name, it.version));
    fact("server", server.unwrap_or_default(), plain);
    if row.restarts > 0 {
        fact("restarts", row.restarts.to_string(), plain);
    }
    fact("last error", fault(row), paint.color(Color::Red));
    let action = status_action(row);
    fact("action", action.unwrap_or_default(), plain);
    let unsaved = server_notes::unsaved_login(row).map(Note::into_sentence);
    fact(
        "login",
        unsaved.unwrap_or_default(),
        paint.color(Color::Red),
    );
    lines
}

fn fault(row: &ServerStatus) -> String {
    row.last_error
        .as_ref()
        .map_or_else(String::new, ToString::to_string)
}

/// The last fault, else what else is wrong.
fn last_error(row: &ServerStatus) -> String {
    let fault = fault(row);
    let unsaved = || server_notes::unsaved_login(row).map(|note| note.text);
    let other = || unsaved().or_else(|| server_notes::ambiguous_requests(row));
    match fault.is_empty() {
        true => other().unwrap_or_default(),
        false => fault,
    }
}

/// The keys, or the result of the last command.
fn footer(model: &Model, paint: Paint) -> Line<'static> {
    let order = match model.order {
        Order::Name => "name",
        Order::State => "state",
        Order::Calls => "calls",
    };
    let text = match model.mode {
        Mode::Filter => return Line::raw(format!(" filter: {}▏", printable(&model.filter))),
        Mode::Help => " press any key to go back".to_owned(),
        _ if !model.message.is_empty() => format!(" {}", printable(&model.message)),
        Mode::Detail if model.controls => {
            " ↑↓ scroll  r reconnect  e enable  d disable  q back".to_owned()
        }
        Mode::Detail => " ↑↓ scroll  q back".to_owned(),
        Mode::List => {
            let filter = match model.filter.as_str() {
                "" => "/ filter".to_owned(),
                filter => format!("filter: {} (esc clears)", printable(filter)),
            };
            format!(" ↑↓ move  enter detail  {filter}  s sort: {order}  ? help  q quit")
        }
    };
    Line::styled(text, paint.dim())
}

fn help(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let mut lines = vec![
        "↑ ↓ j k       move           PgUp PgDn Home End   page, first, last",
        "enter         one server: events, tools, stderr",
        "/             filter by name or state; esc clears it",
        "s             sort by name, state or calls",
    ];
    if model.controls {
        lines.push("r e d         reconnect, enable, disable");
    }
    lines.extend([
        "q Ctrl-C      quit",
        "",
        "GEN       connections so far",
        "ATTEMPTS  used reconnect budget, time until the next attempt",
        "CALLS     in flight + queued",
        "LATENCY   round trips of pings",
        "TOOLS     catalog size (? = not confirmed)",
    ]);
    let height = u16::try_from(lines.len()).unwrap_or(0) + 2;
    let width = 68.min(area.width);
    let height = height.min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    frame.render_widget(Clear, place);
    let help = Paragraph::new(lines).block(Block::bordered().title(" keys "));
    frame.render_widget(help, place);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcpvisor::rmcp::model::Implementation;
    use mcpvisor::{Action, Fault, FaultClass, StateName, UnsavedLogin};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::screen::keys::Key;
    use crate::screen::server_row::status;

    fn fleet(now: Instant) -> Model {
        let row = |name: &str, state: StateName| {
            let mut row = status(name, state);
            (row.generation, row.transport, row.tools) = (1.into(), "stdio", 7);
            row
        };
        let mut notes = row("notes", StateName::Connected);
        notes.server = Some(Implementation::new("notes", "1.0.0"));
        (notes.in_flight, notes.waiting) = (3, 2);
        let mut weather = row("weather", StateName::Reconnecting);
        (weather.generation, weather.stale) = (4.into(), true);
        (weather.attempts_used, weather.attempts_limit) = (4, 10);
        weather.retry_at = Some(now + Duration::from_millis(2_500));
        let killed = "the process was killed by signal 9\u{1b}[2J";
        weather.last_error = Some(Fault::new(FaultClass::Exited, killed));
        let mut nowhere = row("nowhere", StateName::PermanentlyFailed);
        (nowhere.tools, nowhere.stale) = (0, true);
        let not_found = "the command \"nowhere\" was not found";
        nowhere.last_error = Some(Fault::new(FaultClass::CommandNotFound, not_found));
        let install = "install it or give the full path";
        nowhere.action = Some(Action::Custom(install.to_owned()));
        let mut model = Model::new("mcpvisor  mcp.json", true, false);
        model.set_rows(vec![notes, weather, nowhere]);
        for ms in [2, 3, 9, 4] {
            model.add_sample("notes", Some(Duration::from_millis(ms)));
        }
        model.add_line(line_of("weather", "connected → reconnecting", Tone::Bad));
        model
    }

    fn line_of(who: &str, text: &str, tone: Tone) -> StoryLine {
        StoryLine {
            at: Duration::from_millis(1_500),
            who: who.to_owned(),
            text: text.to_owned(),
            tone,
        }
    }

    fn render(model: &Model, width: u16, height: u16, now: Instant) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, model, ColorMode::Colored, now))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn snapshot(name: &str, text: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(name, text));
    }

    #[test]
    fn the_list_in_a_wide_and_in_a_narrow_terminal() {
        let now = Instant::now();
        let model = fleet(now);
        snapshot("list_wide", &render(&model, 120, 10, now));
        snapshot("list_narrow", &render(&model, 60, 8, now));
    }

    #[test]
    fn one_server_in_detail() {
        let now = Instant::now();
        let mut model = fleet(now);
        model.tools = vec!["forecast".to_owned(), "alarm".to_owned()];
        model.stderr = "starting\nit \u{1b}[31mrains\n".to_owned();
        for key in [Key::Down, Key::Down, Key::Enter] {
            model.key(key);
        }
        snapshot("detail", &render(&model, 80, 24, now));
    }

    #[test]
    fn an_event_of_the_detail_page_takes_one_line_within_its_frame() {
        let now = Instant::now();
        let mut model = fleet(now);
        let text = format!("connected → reconnecting: {} END", "乳酪 ".repeat(30));
        model.add_line(line_of("weather", &text, Tone::Bad));
        for key in [Key::Down, Key::Down, Key::Enter] {
            model.key(key);
        }
        for width in [79, 80, 81] {
            let screen = render(&model, width, 24, now);
            let line = screen.lines().find(|line| line.contains('乳')).unwrap();
            assert!(line.trim_end_matches([' ', '│']).ends_with('…'), "{screen}");
            let many = screen.lines().filter(|line| line.contains('乳'));
            assert_eq!(many.count(), 1, "{screen}");
        }
    }

    #[test]
    fn a_login_that_is_not_saved_is_shown_in_the_list_and_with_what_to_do() {
        let now = Instant::now();
        let mut model = fleet(now);
        let mut row = model.current().unwrap().clone();
        let action = Action::Custom("free space in /state; otherwise log in again".to_owned());
        row.unsaved_login = Some(UnsavedLogin::new("No space left on device", action));
        model.set_rows(vec![row]);
        let why = "the renewed login could not be saved (No space left on device)";
        let list = render(&model, 160, 24, now);
        assert!(list.contains(why), "{list}");
        model.key(Key::Enter);
        let detail = render(&model, 160, 24, now);
        let action = "Free space in /state; otherwise log in again.";
        assert!(detail.contains(&format!("{why}. {action}")), "{detail}");
    }

    #[test]
    fn a_count_of_one_is_singular() {
        let now = Instant::now();
        let mut model = fleet(now);
        let mut row = model.current().unwrap().clone();
        (row.tools, row.prompts, row.resources) = (1, 2, 1);
        model.set_rows(vec![row]);
        model.key(Key::Enter);
        let screen = render(&model, 80, 24, now);
        assert!(screen.contains("1 tool, 2 prompts, 1 resource"), "{screen}");
    }

    #[test]
    fn help_and_filter() {
        let now = Instant::now();
        let mut model = fleet(now);
        model.key(Key::Char('?'));
        snapshot("help", &render(&model, 100, 20, now));
        for key in [Key::Escape, Key::Char('/'), Key::Char('w'), Key::Char('e')] {
            model.key(key);
        }
        snapshot("filter", &render(&model, 100, 8, now));
    }

    #[test]
    fn the_story_of_the_demo_is_shown_under_the_table() {
        let now = Instant::now();
        let mut model = fleet(now);
        model.story = true;
        model.controls = false;
        model.add_line(line_of(
            "",
            "Act 2: notes is killed in mid-call",
            Tone::Title,
        ));
        model.add_line(line_of("fault", "kill -9 4711", Tone::Fault));
        model.add_line(line_of(
            "planner",
            "answered by the new process",
            Tone::Good,
        ));
        snapshot("story", &render(&model, 100, 16, now));
    }

    #[test]
    fn two_hundred_servers_scroll() {
        let now = Instant::now();
        let mut model = Model::new("many", true, false);
        let many =
            (0..200).map(|number| status(&format!("server-{number:03}"), StateName::Connected));
        model.set_rows(many.collect());
        assert!(render(&model, 100, 20, now).contains("server-000"));
        model.key(Key::End);
        let end = render(&model, 100, 20, now);
        assert!(
            end.contains("server-199") && !end.contains("server-000"),
            "{end}"
        );
        assert!(end.contains("200 servers: 200 connected"), "{end}");
    }

    #[test]
    fn any_terminal_size_can_be_drawn() {
        let now = Instant::now();
        let mut model = fleet(now);
        model.story = true;
        for key in [
            Key::Char('?'),
            Key::Escape,
            Key::Enter,
            Key::Escape,
            Key::Char('/'),
        ] {
            model.key(key);
            for (width, height) in [(1, 1), (2, 3), (10, 2), (300, 4), (5, 100)] {
                render(&model, width, height, now);
            }
        }
    }

    #[test]
    fn plain_mode_has_no_colors() {
        let now = Instant::now();
        let model = fleet(now);
        let mut terminal = Terminal::new(TestBackend::new(120, 10)).unwrap();
        terminal
            .draw(|frame| draw(frame, &model, ColorMode::Plain, now))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset));
        terminal
            .draw(|frame| draw(frame, &model, ColorMode::Colored, now))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().any(|cell| cell.fg == Color::Green));
    }
}
