//! Runs the real demo on a terminal of a fixed size, and draws what that terminal showed as an SVG.
//!
//! ```text
//! cargo build --release && cargo run --release -p mcpvisor-cli --example record-demo -- docs/demo.svg
//! ```
//!
//! Nothing but this repository is needed.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Read;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const ROWS: u16 = 34;
const COLUMNS: u16 = 124;

/// The picture is taken when this has been told: the kill and the parking are on the screen.
const MOMENT: &str = "parked after";

/// A demo takes a third of that.
const LIMIT: Duration = Duration::from_secs(90);

/// Pixels of one character.
const WIDTH: f32 = 8.0;
const HEIGHT: f32 = 17.0;
const MARGIN: f32 = 14.0;

const BACKGROUND: &str = "#14161b";
const FOREGROUND: &str = "#d6d8de";
const DIM: &str = "#8b909c";
const COLOURS: [&str; 8] = [
    "#3b3f4a", "#f2777a", "#8fd18f", "#ecc574", "#7fb2f0", "#cf9ce8", "#76cbd0", "#d6d8de",
];

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args()
        .nth(1)
        .ok_or("where to? name an SVG file")?;
    let screen = record()?;
    std::fs::write(&target, svg(&screen)?)?;
    Ok(())
}

/// The binary beside this example.
fn binary() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let profile = own.parent().and_then(|examples| examples.parent());
    let binary = profile.ok_or("no target folder")?.join("mcpvisor");
    if !binary.exists() {
        return Err(format!("{} is not built", binary.display()).into());
    }
    Ok(binary)
}

/// Plays the demo to its end, and keeps the screen of the moment.
fn record() -> Result<vt100::Screen, Box<dyn Error>> {
    let size = PtySize {
        rows: ROWS,
        cols: COLUMNS,
        pixel_width: 0,
        pixel_height: 0,
    };
    let pair = native_pty_system().openpty(size)?;
    let mut command = CommandBuilder::new(binary()?);
    command.args(["demo", "--seed", "7"]);
    command.env("TERM", "xterm-256color");
    command.env_remove("NO_COLOR");
    let mut child = pair.slave.spawn_command(command)?;
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader()?;
    let (sender, written) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            let _ = sender.send(buffer[..read].to_vec());
        }
    });
    let size = |number: u16| NonZero::new(number).ok_or("no size");
    let mut parser = vt100::Parser::new(size(ROWS)?, size(COLUMNS)?, 0);
    let mut moment = None;
    let until = Instant::now() + LIMIT;
    while child.try_wait()?.is_none() && Instant::now() < until {
        while let Ok(bytes) = written.recv_timeout(Duration::from_millis(200)) {
            parser.process(&bytes);
            let screen = parser.screen();
            if moment.is_none() && screen.contents().contains(MOMENT) {
                moment = Some(screen.clone());
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("the demo failed:\n{}", parser.screen().contents()).into());
    }
    moment.ok_or_else(|| format!("{MOMENT:?} was never told").into())
}

/// Characters of one line that look alike.
struct Run {
    column: u16,
    text: String,
    columns: u16,
    colour: &'static str,
    bold: bool,
    inverse: bool,
}

fn svg(screen: &vt100::Screen) -> Result<String, std::fmt::Error> {
    let width = f32::from(COLUMNS) * WIDTH + 2.0 * MARGIN;
    let height = f32::from(ROWS) * HEIGHT + 2.0 * MARGIN;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">"#
    )?;
    writeln!(
        svg,
        "<title>mcpvisor demo: a server is killed and comes back, another one is parked</title>"
    )?;
    writeln!(
        svg,
        r#"<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>"#
    )?;
    for row in 0..ROWS {
        for run in runs(screen, row) {
            draw(&mut svg, row, &run)?;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn runs(screen: &vt100::Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        if cell.is_wide_continuation() {
            continue;
        }
        let colour = match cell.fgcolor() {
            vt100::Color::Idx(index) => COLOURS[usize::from(index) % 8],
            _ if cell.dim() => DIM,
            _ => FOREGROUND,
        };
        let text = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        let columns = if cell.is_wide() { 2 } else { 1 };
        let (bold, inverse) = (cell.bold(), cell.inverse());
        match runs.last_mut() {
            Some(run) if (run.colour, run.bold, run.inverse) == (colour, bold, inverse) => {
                run.text.push_str(text);
                run.columns += columns;
            }
            _ => runs.push(Run {
                column,
                text: text.to_owned(),
                columns,
                colour,
                bold,
                inverse,
            }),
        }
    }
    runs
}

fn draw(svg: &mut String, row: u16, run: &Run) -> std::fmt::Result {
    let x = MARGIN + f32::from(run.column) * WIDTH;
    let top = MARGIN + f32::from(row) * HEIGHT;
    let width = f32::from(run.columns) * WIDTH;
    let mut colour = run.colour;
    if run.inverse {
        writeln!(
            svg,
            r#"<rect x="{x}" y="{top}" width="{width}" height="{HEIGHT}" fill="{colour}"/>"#
        )?;
        colour = BACKGROUND;
    }
    if run.text.trim().is_empty() {
        return Ok(());
    }
    let shown = run.text.trim_end();
    let columns = run.columns - u16::try_from(run.text.len() - shown.len()).unwrap_or(0);
    let length = f32::from(columns) * WIDTH;
    let weight = if run.bold {
        r#" font-weight="bold""#
    } else {
        ""
    };
    let text = shown
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    writeln!(
        svg,
        r#"<text x="{x}" y="{}" fill="{colour}"{weight} textLength="{length}" xml:space="preserve">{text}</text>"#,
        top + HEIGHT * 0.76
    )
}
