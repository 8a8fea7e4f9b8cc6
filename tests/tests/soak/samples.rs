//! Samples the resources of this process over time, and checks for growth.

use std::fmt;
use std::time::Duration;

use mcpvisor_testkit::leaks::{Slack, Snapshot};

const MIB: f64 = 1024.0 * 1024.0;

/// How much the median of the last third may exceed that of the second. The first third allows for
/// one-time growth. A leak of one per fault exceeds this within a few seconds.
const ALLOWED: [(&str, f64); 4] = [
    ("memory", 8.0),
    ("descriptors", 6.0),
    ("tasks", 6.0),
    ("processes", 3.0),
];

/// One sample.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    /// In the order of [`ALLOWED`]; memory in MiB.
    values: [f64; 4],
}

/// All samples.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Sample>);

/// What grew.
#[derive(Debug)]
pub(crate) struct Growth(Vec<String>);

impl Growth {
    pub(crate) fn names(&self, what: &str) -> bool {
        self.0.iter().any(|grown| grown.starts_with(what))
    }
}

impl Samples {
    pub(crate) fn take(&mut self, at: Duration) {
        let now = Snapshot::take();
        let processes = now.children.len() + now.zombies.len();
        let values = [
            now.memory as f64 / MIB,
            now.descriptors.len() as f64,
            now.tasks as f64,
            processes as f64,
        ];
        self.0.push(Sample { at, values });
    }

    /// Compares the last third with the second, and two idle snapshots before and after.
    pub(crate) fn judge(&self, before: &Snapshot, after: &Snapshot) -> Result<(), Growth> {
        let third = self.0.len() / 3;
        let (second, last) = (&self.0[third..2 * third], &self.0[2 * third..]);
        let mut grown = Vec::new();
        for (kind, (what, allowed)) in ALLOWED.iter().enumerate() {
            let (was, is) = (middle(second, kind), middle(last, kind));
            if is > was + allowed {
                grown.push(format!("{what} {was:.1} -> {is:.1}"));
            }
        }
        if let Err(growth) = before.growth(after, Slack::NONE) {
            grown.push(format!("in peace: {growth:?}"));
        }
        if grown.is_empty() {
            Ok(())
        } else {
            Err(Growth(grown))
        }
    }

    /// The growth of a value per minute: a linear fit through all samples after the first third.
    fn slope(&self, kind: usize) -> f64 {
        let looks = &self.0[self.0.len() / 3..];
        let count = looks.len() as f64;
        let x = |look: &Sample| look.at.as_secs_f64() / 60.0;
        let mean_x = looks.iter().map(x).sum::<f64>() / count;
        let mean_y = looks.iter().map(|look| look.values[kind]).sum::<f64>() / count;
        let (mut over, mut under) = (0.0, 0.0);
        for look in looks {
            over += (x(look) - mean_x) * (look.values[kind] - mean_y);
            under += (x(look) - mean_x).powi(2);
        }
        over / under
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let third = self.0.len() / 3;
        for (kind, (what, _)) in ALLOWED.iter().enumerate() {
            let was = middle(&self.0[third..2 * third], kind);
            let is = middle(&self.0[2 * third..], kind);
            let slope = self.slope(kind);
            write!(f, "; {what} {was:.1} -> {is:.1} ({slope:+.2} a minute)")?;
        }
        Ok(())
    }
}

fn middle(samples: &[Sample], kind: usize) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(|sample| sample.values[kind]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
