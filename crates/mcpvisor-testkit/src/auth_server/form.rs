//! Form parameters, of a query or of a body.

/// Decoded parameters in order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form(pub Vec<(String, String)>);

impl Form {
    /// Decodes `application/x-www-form-urlencoded`.
    pub fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The first value of a parameter; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// All values of a parameter that are not empty.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|(known, _)| known == name);
        let values = found.map(|(_, value)| value.as_str());
        values.filter(|value| !value.is_empty()).collect()
    }

    /// The words of a parameter, such as scopes.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let value = self.get(name).unwrap_or_default();
        value.split_whitespace().map(str::to_owned).collect()
    }
}

/// Adds parameters to a URL.
pub(super) fn with_query(url: &str, parameters: &[(&str, &str)]) -> String {
    let mut encoded = form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(parameters);
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{}", encoded.finish())
}
