//! The likeliest of some names for one that does not exist.

/// Longer names, in bytes, are no slips of anyone's fingers, and comparing them takes long.
const MAX_LENGTH: usize = 200;

/// The nearest name, if any is close enough to be meant.
pub(crate) fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    /// Half of the letters must agree.
    const CLOSE: f64 = 0.5;
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    names
        .filter(|known| name.len().max(known.len()) <= MAX_LENGTH)
        .map(|known| {
            (
                strsim::normalized_damerau_levenshtein(&plain(name), &plain(known)),
                known,
            )
        })
        .filter(|(likeness, _)| *likeness >= CLOSE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_what_was_meant_and_nonsense_finds_nothing() {
        let names = ["search_issues", "append", "echo"];
        let near = |name| nearest(name, names.into_iter());
        assert_eq!(near("searchIssues"), Some("search_issues"));
        assert_eq!(near("ecoh"), Some("echo"));
        assert_eq!(near("delete_everything"), None);
        let long = "x".repeat(10_000_000);
        assert_eq!(nearest(&long, [long.as_str()].into_iter()), None);
    }
}
