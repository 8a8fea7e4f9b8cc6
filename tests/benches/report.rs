//! Measured figures, their gates, and the table that shows both.

use std::fmt;
use std::io::{self, Write};

/// The value that a row's gate applies to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    /// Ours divided by bare.
    Ratio(f64),
    /// Ours alone, or ours minus bare, in the row's unit.
    Amount(f64),
}

/// One measure of both sides.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    /// Bare rmcp's figure, if there is one.
    pub(crate) bare: Option<f64>,
    /// The value that the gate applies to.
    pub(crate) verdict: Verdict,
    /// The maximum; `None` makes the row informational.
    pub(crate) gate: Option<f64>,
    /// The values of all attempts in order, if there was more than one.
    pub(crate) tries: Vec<f64>,
}

impl Row {
    /// A row gated on the ratio of both sides.
    pub(crate) fn ratio(
        measure: impl Into<String>,
        unit: &'static str,
        both: Both,
        gate: Option<f64>,
    ) -> Self {
        Self {
            measure: measure.into(),
            unit,
            ours: both.ours,
            bare: Some(both.bare),
            verdict: Verdict::Ratio(both.ratio),
            gate,
            tries: Vec::new(),
        }
    }

    /// The value that the gate applies to; lower is better.
    pub(crate) fn value(&self) -> f64 {
        match self.verdict {
            Verdict::Ratio(value) | Verdict::Amount(value) => value,
        }
    }

    /// A row gated on our figure alone.
    pub(crate) fn amount(
        measure: impl Into<String>,
        unit: &'static str,
        ours: f64,
        gate: Option<f64>,
    ) -> Self {
        Self {
            measure: measure.into(),
            unit,
            ours,
            bare: None,
            verdict: Verdict::Amount(ours),
            gate,
            tries: Vec::new(),
        }
    }

    /// Whether the gate passes; a row without one always does.
    pub(crate) fn passes(&self) -> bool {
        self.gate.is_none_or(|gate| self.value() <= gate)
    }

    fn verdict_text(&self, value: f64) -> String {
        match self.verdict {
            Verdict::Ratio(_) => format!("{value:.3}"),
            Verdict::Amount(_) => format!("{value:.2} {}", self.unit),
        }
    }
}

/// The figures of both sides and their ratio. The ratio is the median over the rounds, so it can
/// differ from the ratio of the figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Both {
    /// Our median.
    pub(crate) ours: f64,
    /// Bare rmcp's median.
    pub(crate) bare: f64,
    /// The median of ours ÷ bare, round by round.
    pub(crate) ratio: f64,
}

impl Both {
    /// Two figures from a single measurement.
    pub(crate) fn of_figures(ours: f64, bare: f64) -> Self {
        Self {
            ours,
            bare,
            ratio: ours / bare,
        }
    }

    /// Summarizes rounds of (ours, bare).
    pub(crate) fn of_rounds(rounds: &[(f64, f64)]) -> Self {
        Self {
            ours: median(rounds.iter().map(|round| round.0)),
            bare: median(rounds.iter().map(|round| round.1)),
            ratio: median(rounds.iter().map(|round| round.0 / round.1)),
        }
    }
}

/// The median; 0 if empty.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(values, 0.5)
}

/// The value that this share of the values does not exceed; 0 if empty.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    values
        .get((last * share).ceil() as usize)
        .copied()
        .unwrap_or(0.0)
}

/// Prints rows as they arrive, under one heading.
pub(crate) struct Table<W> {
    out: W,
    failed: usize,
}

impl<W: Write> Table<W> {
    /// Starts a table with its heading.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        writeln!(
            out,
            "{:<58} | {:>14} | {:>14} | {:>10} | {:>10} | ok",
            "measure", "ours", "bare", "ratio", "gate"
        )?;
        writeln!(
            out,
            "{:-<59}+{:-<16}+{:-<16}+{:-<12}+{:-<12}+----",
            "", "", "", "", ""
        )?;
        Ok(Self { out, failed: 0 })
    }

    /// Prints one row and records whether its gate passed.
    pub(crate) fn row(&mut self, row: &Row) -> io::Result<()> {
        let dash = || "–".to_owned();
        let figure = |value: f64| format!("{} {}", Figure(value), row.unit);
        let ok = match (row.gate, row.passes()) {
            (None, _) => "–",
            (Some(_), true) => "yes",
            (Some(_), false) => "NO",
        };
        let tries: Vec<String> = row
            .tries
            .iter()
            .map(|value| row.verdict_text(*value))
            .collect();
        let tries = match tries.len() {
            0 => String::new(),
            count => format!(", best of {count} tries: {}", tries.join(", ")),
        };
        self.failed += usize::from(!row.passes());
        writeln!(
            self.out,
            "{:<58} | {:>14} | {:>14} | {:>10} | {:>10} | {ok}{tries}",
            row.measure,
            figure(row.ours),
            row.bare.map_or_else(dash, figure),
            row.verdict_text(row.value()),
            row.gate.map_or_else(dash, |gate| row.verdict_text(gate)),
        )?;
        self.out.flush()
    }

    /// Prints several rows.
    pub(crate) fn rows(&mut self, rows: &[Row]) -> io::Result<()> {
        rows.iter().try_for_each(|row| self.row(row))
    }

    /// Prints a note in place of a row.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// How many gates failed.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }
}

/// A number formatted with decimals according to its size.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.0.abs() {
            large if large >= 1_000.0 => 0,
            middle if middle >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{:.decimals$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_not_of_the_figures() {
        let both = Both::of_rounds(&[(1.0, 2.0), (30.0, 40.0), (2.0, 2.0)]);
        assert_eq!((both.ours, both.bare, both.ratio), (2.0, 2.0, 0.75));
    }

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values = || (1..=50).map(f64::from);
        assert_eq!(percentile(values(), 0.99), 50.0);
        assert_eq!(percentile(values(), 0.5), 26.0);
        assert_eq!(percentile(std::iter::empty(), 0.5), 0.0);
    }
}
