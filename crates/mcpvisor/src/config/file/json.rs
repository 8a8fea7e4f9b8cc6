//! Parses JSON with comments and trailing commas.

use jsonc_parser::ast;
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::syntax_tree::{Member, Node, Span, SyntaxError, Value, without_mark};

/// Comments and trailing commas are all that is allowed beyond JSON.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let (plain, offset) = without_mark(text);
    let parsed = parse_to_ast(plain, &CollectOptions::default(), &OPTIONS);
    let parsed = parsed.map_err(|error| SyntaxError {
        problem: describe(error.kind()),
        span: span(error.range(), offset),
    })?;
    let value = parsed.value.ok_or_else(|| SyntaxError {
        problem: "the file is empty; write { \"mcpServers\": { … } }".to_owned(),
        span: text.len()..text.len(),
    })?;
    Ok(node(value, offset))
}

fn node(value: ast::Value<'_>, offset: usize) -> Node {
    let span = span(value.range(), offset);
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NumberLit(number) => number.value.parse().map_or(Value::Other, Value::Number),
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::Array(list) => {
            let nodes = list.elements.into_iter();
            Value::List(nodes.map(|value| node(value, offset)).collect())
        }
        ast::Value::Object(object) => {
            let members = object.properties.into_iter();
            Value::Object(members.map(|member| self::member(member, offset)).collect())
        }
    };
    Node { value, span }
}

fn member(member: ast::ObjectProp<'_>, offset: usize) -> Member {
    Member {
        key_span: span(member.name.range(), offset),
        key: member.name.into_string(),
        node: node(member.value, offset),
    }
}

fn span(range: Range, offset: usize) -> Span {
    range.start + offset..range.end + offset
}

/// Describes a syntax error and how to fix it. Other errors keep the parser's message, which quotes
/// nothing of the text.
fn describe(kind: &ParseErrorKind) -> String {
    let message = match kind {
        ParseErrorKind::String(_) => {
            "unterminated string or invalid escape; close it with \", and write \\ as \\\\"
        }
        ParseErrorKind::ExpectedComma => "expected a comma before this",
        ParseErrorKind::UnterminatedObject => "unclosed {; add a }",
        ParseErrorKind::UnterminatedArray => "unclosed [; add a ]",
        ParseErrorKind::UnterminatedCommentBlock => "unclosed comment; add */",
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedTokenInObject => {
            "expected a quoted key"
        }
        ParseErrorKind::UnexpectedWord => "expected a quoted key or a value",
        ParseErrorKind::SingleQuotedStringsNotAllowed => "use double quotes, not single quotes",
        ParseErrorKind::MultipleRootJsonValues => {
            "unexpected text after the config; put everything into one { … }"
        }
        ParseErrorKind::ExpectedColonAfterObjectKey => "expected a : after this key",
        ParseErrorKind::ExpectedObjectValue => "expected a value after this key",
        ParseErrorKind::UnexpectedCloseBrace => "unmatched }",
        ParseErrorKind::UnexpectedCloseBracket => "unmatched ]",
        ParseErrorKind::NestingDepthExceeded => "nested too deeply",
        other => return other.to_string().to_lowercase(),
    };
    message.to_owned()
}
