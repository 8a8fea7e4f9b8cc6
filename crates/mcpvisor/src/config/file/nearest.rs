//! Suggests the nearest known name for a misspelled one.

/// The name closest to a misspelled one, if any is close enough.
///
/// ```
/// let names = ["search_issues", "echo"];
/// assert_eq!(mcpvisor::config::nearest_name("searchIssue", names), Some("search_issues"));
/// assert_eq!(mcpvisor::config::nearest_name("delete", names), None);
/// ```
pub fn nearest_name<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    /// Minimum similarity: a third of the characters may differ.
    const CLOSE: f64 = 0.66;
    /// Longer names, in bytes, are not compared: that takes long.
    const MAX_LENGTH: usize = 200;
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    names
        .into_iter()
        .filter(|known| name.len().max(known.len()) <= MAX_LENGTH)
        .map(|known| {
            (
                strsim::normalized_damerau_levenshtein(&plain(name), &plain(known)),
                known,
            )
        })
        .filter(|(likeness, _)| *likeness > CLOSE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
