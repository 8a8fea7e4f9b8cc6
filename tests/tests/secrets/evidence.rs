//! Collects visible texts and searches them for canaries.

use std::error::Error;
use std::fmt::Debug;

/// Part of every canary.
pub(crate) const MARK: &str = "c4n4ry";

/// Texts with their origin.
#[derive(Default)]
pub(crate) struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    pub(crate) fn add(&mut self, what: &'static str, text: String) {
        self.0.push((what, text));
    }

    /// Adds the `Debug` output, on one line and pretty-printed.
    pub(crate) fn debug(&mut self, what: &'static str, value: &impl Debug) {
        self.add(what, format!("{value:?}\n{value:#?}"));
    }

    /// Adds the text of an error and its sources.
    pub(crate) fn error(&mut self, what: &'static str, error: &(impl Error + 'static)) {
        self.debug(what, error);
        let mut next: Option<&dyn Error> = Some(error);
        while let Some(error) = next {
            self.add(what, error.to_string());
            next = error.source();
        }
    }

    #[track_caller]
    pub(crate) fn assert_shows_nothing(&self) {
        assert!(self.0.len() > 50, "there is evidence");
        let hits: Vec<_> = self.0.iter().filter(|(_, text)| shows(text)).collect();
        assert!(
            hits.is_empty(),
            "{} secrets are shown: {hits:#?}",
            hits.len()
        );
    }
}

/// Whether a text contains a canary, also as the byte list that a careless `Debug` prints.
pub(crate) fn shows(text: &str) -> bool {
    let numbers: Vec<String> = MARK.bytes().map(|byte| byte.to_string()).collect();
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.contains(MARK) || plain.contains(&numbers.join(","))
}
