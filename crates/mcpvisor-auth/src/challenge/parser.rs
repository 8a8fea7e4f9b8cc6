//! Splits a `WWW-Authenticate` value into schemes and parameters (RFC 9110, 11.6.1).

/// A piece of a challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'v> {
    /// A challenge begins.
    Scheme(&'v [u8]),
    /// A parameter of a challenge.
    Parameter {
        /// The scheme of the challenge.
        scheme: &'v [u8],
        name: &'v [u8],
        /// The value without quotes and escapes.
        value: Vec<u8>,
    },
}

impl<'v> Item<'v> {
    pub(super) fn scheme(&self) -> &'v [u8] {
        match self {
            Self::Scheme(scheme) | Self::Parameter { scheme, .. } => scheme,
        }
    }
}

/// Reports every scheme and parameter in order. A word is a parameter if `=` follows it, else a
/// scheme. Parameters before the first scheme are dropped.
pub(super) fn read<'v>(value: &'v [u8], report: &mut impl FnMut(Item<'v>)) {
    let mut cursor = Cursor { rest: value };
    let mut scheme: Option<&'v [u8]> = None;
    while !cursor.rest.is_empty() {
        let word = cursor.take_while(is_token_byte);
        if word.is_empty() {
            cursor.skip_separator();
            continue;
        }
        let after_word = cursor.rest;
        cursor.take_while(is_space);
        if cursor.take_byte(b'=') {
            cursor.take_while(is_space);
            let value = cursor.parameter_value();
            if let (Some(scheme), Some(value)) = (scheme, value) {
                report(Item::Parameter {
                    scheme,
                    name: word,
                    value,
                });
            }
        } else {
            scheme = Some(word);
            report(Item::Scheme(word));
            if cursor.rest.len() < after_word.len() {
                cursor.skip_token68();
            }
        }
    }
}

/// What is left of a value.
struct Cursor<'v> {
    rest: &'v [u8],
}

impl<'v> Cursor<'v> {
    fn take_while(&mut self, accepts: impl Fn(u8) -> bool) -> &'v [u8] {
        let end = self.rest.iter().position(|byte| !accepts(*byte));
        let (taken, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn take_byte(&mut self, wanted: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Skips what separates words: a comma, a space, or a stray byte or quoted string.
    fn skip_separator(&mut self) {
        if self.take_byte(b'"') {
            self.quoted();
        } else {
            self.rest = self.rest.get(1..).unwrap_or_default();
        }
    }

    /// A quoted string or, leniently, everything up to a comma or space. `None` if the closing
    /// quote is missing: such a value is incomplete.
    fn parameter_value(&mut self) -> Option<Vec<u8>> {
        if self.take_byte(b'"') {
            self.quoted()
        } else {
            let value = self.take_while(|byte| byte != b',' && !is_space(byte));
            Some(value.to_vec())
        }
    }

    /// The rest of a quoted string, without escapes.
    fn quoted(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        while let Some((first, rest)) = self.rest.split_first() {
            self.rest = rest;
            match first {
                b'"' => return Some(value),
                b'\\' => {
                    let (escaped, rest) = rest.split_first()?;
                    value.push(*escaped);
                    self.rest = rest;
                }
                byte => value.push(*byte),
            }
        }
        None
    }

    /// Skips the token68 of a challenge, such as that of `Negotiate`: it fills the challenge.
    fn skip_token68(&mut self) {
        let start = self.rest;
        let text =
            self.take_while(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
        self.take_while(|byte| byte == b'=');
        self.take_while(is_space);
        let at_end = matches!(self.rest.first(), None | Some(b','));
        if text.is_empty() || !at_end {
            self.rest = start;
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
