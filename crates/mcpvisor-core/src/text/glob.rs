//! Glob patterns over names: `*` matches any text, `?` any one character, everything else itself.

/// One pattern.
///
/// ```
/// use mcpvisor_core::glob::Glob;
///
/// let search = Glob::new("search_*");
/// assert!(search.matches("search_issues") && !search.matches("delete_issue"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob(Box<str>);

impl Glob {
    /// A pattern. Every text is a valid one.
    pub fn new(pattern: impl Into<Box<str>>) -> Self {
        Self(pattern.into())
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches the whole name. Takes at most as many steps as the product of both
    /// lengths.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // Where to continue when the last star has to match one more character.
        let mut backtrack = None;
        loop {
            let (mut after_pattern, mut after_rest) = (pattern.clone(), rest.clone());
            match (after_pattern.next(), after_rest.next()) {
                (Some('*'), _) => {
                    backtrack = Some((after_pattern.clone(), rest.clone()));
                    pattern = after_pattern;
                    continue;
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    (pattern, rest) = (after_pattern, after_rest);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((star, taken)) = &mut backtrack else {
                return false;
            };
            if taken.next().is_none() {
                return false;
            }
            (pattern, rest) = (star.clone(), taken.clone());
        }
    }

    /// The parts of the pattern that are left for what follows a text, one for each way in which the
    /// rest of the pattern matches the text.
    fn left_after(&self, text: &str) -> Vec<&str> {
        let mut left = vec![&*self.0];
        for c in text.chars() {
            let mut next = Vec::new();
            for mut pattern in left {
                // A star takes the character and stays, or ends before it.
                while let Some(behind) = pattern.strip_prefix('*') {
                    next.push(pattern);
                    pattern = behind;
                }
                let mut behind = pattern.chars();
                if behind
                    .next()
                    .is_some_and(|wanted| wanted == '?' || wanted == c)
                {
                    next.push(behind.as_str());
                }
            }
            next.sort_unstable_by_key(|pattern| pattern.len());
            next.dedup_by_key(|pattern| pattern.len());
            left = next;
        }
        left
    }

    /// Whether the pattern matches a text that begins so.
    fn matches_some(&self, start: &str) -> bool {
        !self.left_after(start).is_empty()
    }

    /// Whether the pattern matches every longer text that begins so.
    fn matches_all(&self, start: &str) -> bool {
        let takes_all = |left: &&str| {
            let singles = left.matches('?').count();
            singles <= 1 && left.contains('*') && left.chars().all(|c| c == '*' || c == '?')
        };
        self.left_after(start).iter().any(takes_all)
    }
}

/// Which names pass: those that match a pattern of `allow`, or all if there is none, except those that
/// match a pattern of `deny`.
///
/// ```
/// use mcpvisor_core::glob::Filter;
///
/// let planner = Filter::from_patterns(["github__*", "!github__delete_*"]);
/// assert!(planner.passes("github__search"));
/// assert!(!planner.passes("github__delete_repo") && !planner.passes("files__read"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    allow: Vec<Glob>,
    deny: Vec<Glob>,
}

/// Why a name does not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterRejection {
    /// It matches a pattern of `deny`.
    #[error("denied by the pattern {0:?}")]
    Denied(String),
    /// It matches no pattern of `allow`.
    #[error("matches no allowed pattern")]
    NotAllowed,
}

impl Filter {
    /// A filter from two lists.
    pub fn new(
        allow: impl IntoIterator<Item = impl Into<String>>,
        deny: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            allow: allow.into_iter().map(|it| Glob::new(it.into())).collect(),
            deny: deny.into_iter().map(|it| Glob::new(it.into())).collect(),
        }
    }

    /// A filter from one list, in which `!` before a pattern denies. The order does not matter.
    pub fn from_patterns<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Self {
        let mut filter = Self::default();
        for pattern in patterns {
            match pattern.as_ref().strip_prefix('!') {
                Some(denied) => filter.deny.push(Glob::new(denied)),
                None => filter.allow.push(Glob::new(pattern.as_ref())),
            }
        }
        filter
    }

    /// Whether everything passes.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// Whether this name passes.
    pub fn passes(&self, name: &str) -> bool {
        self.check(name).is_ok()
    }

    /// Whether a longer name that begins so may pass. False only if none passes.
    pub fn may_pass(&self, start: &str) -> bool {
        let allowed = self.allow.is_empty() || self.allow.iter().any(|it| it.matches_some(start));
        allowed && !self.deny.iter().any(|glob| glob.matches_all(start))
    }

    /// Whether this name passes, or why not.
    pub fn check(&self, name: &str) -> Result<(), FilterRejection> {
        if let Some(denied) = self.deny.iter().find(|glob| glob.matches(name)) {
            return Err(FilterRejection::Denied(denied.as_str().to_owned()));
        }
        if self.allow.is_empty() || self.allow.iter().any(|glob| glob.matches(name)) {
            Ok(())
        } else {
            Err(FilterRejection::NotAllowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_text_and_a_question_mark_one_character() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "\u{e4}", true),
            ("?", "", false),
            ("search_*", "search_", true),
            ("*_issue", "delete_issue", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("[a]", "a", false),
            ("**a", "a", true),
        ] {
            assert_eq!(
                Glob::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn deny_wins_whatever_the_order() {
        let one = Filter::from_patterns(["!a*", "ab", "*"]);
        let other = Filter::new(["*", "ab"], ["a*"]);
        assert_eq!(one.check("ab"), Err(FilterRejection::Denied("a*".into())));
        assert!(!other.passes("ab") && other.passes("b"));
        assert!(Filter::from_patterns(["!x"]).passes("y"));
        assert_eq!(
            Filter::from_patterns(["x"]).check("y"),
            Err(FilterRejection::NotAllowed)
        );
        assert!(Filter::default().is_open() && Filter::default().passes("anything"));
    }

    /// A simple model, one character at a time.
    fn model(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|taken| model(rest, &name[taken..])),
            Some(('?', rest)) => !name.is_empty() && model(rest, &name[1..]),
            Some((wanted, rest)) => name.first() == Some(wanted) && model(rest, &name[1..]),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn patterns_agree_with_the_simple_model(pattern in "[ab\u{e4}?*]{0,7}", name in "[ab\u{e4}*]{0,8}") {
            let (wanted, given): (Vec<char>, Vec<char>) =
                (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Glob::new(pattern).matches(&name), model(&wanted, &given));
        }

        #[test]
        fn a_filter_agrees_with_the_simple_model(
            patterns in proptest::collection::vec("!?[ab?*]{0,4}", 0..5), name in "[ab]{0,5}",
        ) {
            let matched = |wanted: &str| {
                let (wanted, given): (Vec<char>, Vec<char>) =
                    (wanted.chars().collect(), name.chars().collect());
                model(&wanted, &given)
            };
            let (deny, allow): (Vec<&str>, Vec<&str>) =
                patterns.iter().map(String::as_str).partition(|it| it.starts_with('!'));
            let denied = deny.iter().any(|it| matched(&it[1..]));
            let allowed = allow.is_empty() || allow.iter().any(|it| matched(it));
            prop_assert_eq!(Filter::from_patterns(&patterns).passes(&name), allowed && !denied);
        }

        #[test]
        fn a_name_that_passes_may_pass_by_each_of_its_starts(
            patterns in proptest::collection::vec("!?[ab?*]{0,4}", 0..5), name in "[ab]{1,5}", at in 0_usize..5,
        ) {
            let filter = Filter::from_patterns(&patterns);
            let start = &name[..at.min(name.len() - 1)];
            prop_assert!(!filter.passes(&name) || filter.may_pass(start), "{start}");
            let glob = Glob::new(patterns.concat());
            prop_assert!(!glob.matches(&name) || glob.matches_some(start));
            prop_assert!(glob.matches(&name) || !glob.matches_all(start));
        }
    }

    #[test]
    fn a_filter_knows_of_a_server_whether_any_of_its_tools_may_pass() {
        let filter = Filter::from_patterns(["git*__*", "*__read", "!github__*", "!gitlab__?*"]);
        assert!(filter.may_pass("gitea__") && filter.may_pass("files__"));
        assert!(!filter.may_pass("github__") && !filter.may_pass("gitlab__"));
        assert!(!Filter::from_patterns(["git__*"]).may_pass("files__"));
        assert!(Filter::default().may_pass("files__"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_matched_quickly() {
        let pattern = Glob::new("*a".repeat(60) + "b");
        assert!(!pattern.matches(&"a".repeat(4_000)));
        assert!(pattern.matches_some(&"a".repeat(4_000)));
    }
}
