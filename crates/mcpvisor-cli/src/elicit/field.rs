//! One field of a form: its question, and the check of an answer.
//!
//! The server checks what its schema requires beyond this.

use serde_json::{Number, Value};

/// Choices shown for one field.
const MAX_CHOICES: usize = 50;

/// A field with its schema.
#[derive(Debug, Clone)]
pub(super) struct Field {
    name: String,
    schema: Value,
    required: bool,
}

/// A choice: its value and its title.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    value: Value,
    title: String,
}

impl Field {
    pub(super) fn new(name: &str, schema: Value, required: bool) -> Self {
        Self {
            name: name.to_owned(),
            schema,
            required,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The server's description: title, choices and default.
    pub(super) fn description(&self) -> Vec<String> {
        let mut title = self.text("title").unwrap_or(&self.name).to_owned();
        if let Some(description) = self.text("description") {
            title.push_str(&format!(" ({description})"));
        }
        let mut lines = vec![title];
        for (number, choice) in self.choices().iter().take(MAX_CHOICES).enumerate() {
            lines.push(format!("  {}. {}", number + 1, choice.title));
        }
        if let Some(default) = self.default() {
            lines.push(format!("default: {default}"));
        }
        lines
    }

    /// The expected answer.
    pub(super) fn expected(&self) -> String {
        let kind = match self.kind() {
            "boolean" => "yes or no",
            "integer" => "a whole number",
            "number" => "a number",
            "array" => "one or more, separated by commas",
            _ if !self.choices().is_empty() => "one of these",
            _ => match self.text("format") {
                Some("email") => "an email address",
                Some("uri") => "a URI",
                Some("date") => "a date such as 2026-11-16",
                Some("date-time") => "a date and time such as 2026-11-16T09:30:00Z",
                _ => "text",
            },
        };
        let if_empty = match (self.default(), self.required) {
            (Some(_), _) => "; empty for the default",
            (None, true) => "",
            (None, false) => "; optional",
        };
        format!("{kind}{if_empty}")
    }

    /// Parses an answer. `None` omits the field, so that its default applies.
    pub(super) fn parse(&self, answer: &str) -> Result<Option<Value>, String> {
        let answer = answer.trim();
        if answer.is_empty() {
            return match self.required && self.default().is_none() {
                true => Err("required".to_owned()),
                false => Ok(None),
            };
        }
        let value = match self.kind() {
            "array" => self.several(answer)?,
            _ if !self.choices().is_empty() => self.chosen(answer)?,
            "boolean" => truth(answer)?,
            "integer" => self.integer(answer)?,
            "number" => self.number(answer)?,
            _ => self.words(answer)?,
        };
        Ok(Some(value))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.schema.get(key).and_then(Value::as_str)
    }

    fn default(&self) -> Option<&Value> {
        let default = self.schema.get("default");
        default.filter(|default| !default.is_null())
    }

    fn kind(&self) -> &str {
        self.text("type").unwrap_or("string")
    }

    /// The choices, in any of the schema's notations.
    fn choices(&self) -> Vec<Choice> {
        let part = self.schema.get("items").unwrap_or(&self.schema);
        let titled = |options: &Vec<Value>| {
            let option = |option: &Value| {
                let value = option.get("const")?.clone();
                let title = option.get("title").and_then(Value::as_str);
                let title = title.map_or_else(|| shown(&value), str::to_owned);
                Some(Choice { value, title })
            };
            options.iter().filter_map(option).collect::<Vec<_>>()
        };
        for key in ["oneOf", "anyOf"] {
            if let Some(options) = part.get(key).and_then(Value::as_array) {
                return titled(options);
            }
        }
        let Some(values) = part.get("enum").and_then(Value::as_array) else {
            return Vec::new();
        };
        let names = part.get("enumNames").and_then(Value::as_array);
        let choice = |(number, value): (usize, &Value)| {
            let title = names.and_then(|names| names.get(number)?.as_str());
            Choice {
                value: value.clone(),
                title: title.map_or_else(|| shown(value), str::to_owned),
            }
        };
        values.iter().enumerate().map(choice).collect()
    }

    /// A choice by its value, title or number.
    fn chosen(&self, answer: &str) -> Result<Value, String> {
        let choices = self.choices();
        let written = choices.iter().find(|choice| {
            shown(&choice.value) == answer || choice.title.eq_ignore_ascii_case(answer)
        });
        let number = answer.parse::<usize>().ok();
        let number = number.and_then(|number| number.checked_sub(1));
        let counted = || number.and_then(|number| choices.get(number));
        match written.or_else(counted) {
            Some(choice) => Ok(choice.value.clone()),
            None => Err(format!("{answer:?} is not one of the choices")),
        }
    }

    fn several(&self, answer: &str) -> Result<Value, String> {
        let parts = answer.split(',').map(str::trim);
        let parts = parts.filter(|part| !part.is_empty());
        let free = self.choices().is_empty();
        let read = |part: &str| match free {
            true => Ok(Value::String(part.to_owned())),
            false => self.chosen(part),
        };
        let values: Vec<Value> = parts.map(read).collect::<Result<_, _>>()?;
        self.within(values.len() as f64, "minItems", "maxItems", "answers")?;
        Ok(Value::Array(values))
    }

    fn integer(&self, answer: &str) -> Result<Value, String> {
        let number: i64 = answer
            .parse()
            .map_err(|_| format!("{answer:?} is not a whole number"))?;
        self.within(number as f64, "minimum", "maximum", "")?;
        Ok(Value::from(number))
    }

    fn number(&self, answer: &str) -> Result<Value, String> {
        let wrong = || format!("{answer:?} is not a number");
        let number: f64 = answer.parse().map_err(|_| wrong())?;
        self.within(number, "minimum", "maximum", "")?;
        let number = Number::from_f64(number);
        number.map(Value::Number).ok_or_else(wrong)
    }

    fn words(&self, answer: &str) -> Result<Value, String> {
        let length = answer.chars().count() as f64;
        self.within(length, "minLength", "maxLength", "characters")?;
        let day = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '-');
        let split = |at| answer.split_once(at).unwrap_or_default();
        let fits = match self.text("format") {
            Some("email") => !split('@').0.is_empty() && split('@').1.contains('.'),
            Some("uri") => !split(':').0.is_empty() && !split(':').1.is_empty(),
            Some("date") => answer.len() == 10 && day(answer),
            Some("date-time") => answer.len() >= 19 && answer.get(..10).is_some_and(day),
            _ => true,
        };
        match fits {
            true => Ok(Value::String(answer.to_owned())),
            false => Err(format!("{answer:?} is not {}", self.expected())),
        }
    }

    fn within(&self, number: f64, min: &str, max: &str, of: &str) -> Result<(), String> {
        let limit = |key: &str| self.schema.get(key).and_then(Value::as_f64);
        let with_unit = |limit: f64| format!("{limit} {of}").trim_end().to_owned();
        match (limit(min), limit(max)) {
            (Some(min), _) if number < min => Err(format!("at least {}", with_unit(min))),
            (_, Some(max)) if number > max => Err(format!("at most {}", with_unit(max))),
            _ => Ok(()),
        }
    }
}

fn truth(answer: &str) -> Result<Value, String> {
    match answer.to_lowercase().as_str() {
        "y" | "yes" | "true" => Ok(Value::Bool(true)),
        "n" | "no" | "false" => Ok(Value::Bool(false)),
        _ => Err("answer yes or no".to_owned()),
    }
}

/// A value without JSON quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(schema: Value, required: bool, answer: &str) -> Result<Option<Value>, String> {
        Field::new("f", schema, required).parse(answer)
    }

    #[test]
    fn answers_are_parsed_as_the_type_of_their_field() {
        let letters = json!({ "type": "string", "enum": ["a", "b"] });
        let email = json!({ "type": "string", "format": "email" });
        let date = json!({ "type": "string", "format": "date" });
        let several = json!({ "type": "array", "items": { "enum": ["a", "b", "c"] } });
        let titled = json!({ "oneOf": [{ "const": "x", "title": "The X" }] });
        for (schema, answer, value) in [
            (json!({ "type": "string" }), " Brie ", json!("Brie")),
            (json!({ "type": "integer" }), "5", json!(5)),
            (json!({ "type": "number" }), "2.5", json!(2.5)),
            (json!({ "type": "boolean" }), "Yes", json!(true)),
            (letters.clone(), "b", json!("b")),
            (letters, "2", json!("b")),
            (
                json!({ "enum": ["a"], "enumNames": ["First"] }),
                "first",
                json!("a"),
            ),
            (titled, "The X", json!("x")),
            (several, "a, 3", json!(["a", "c"])),
            (email, "a@b.c", json!("a@b.c")),
            (date, "2026-11-16", json!("2026-11-16")),
        ] {
            assert_eq!(
                read(schema.clone(), true, answer),
                Ok(Some(value)),
                "{schema}"
            );
        }
    }

    #[test]
    fn invalid_answers_are_rejected() {
        for (schema, answer) in [
            (json!({ "type": "integer" }), "many"),
            (json!({ "type": "integer", "minimum": 3 }), "2"),
            (json!({ "type": "number", "maximum": 3 }), "4"),
            (json!({ "type": "number" }), "inf"),
            (json!({ "type": "boolean" }), "perhaps"),
            (json!({ "enum": ["a", "b"] }), "3"),
            (json!({ "enum": ["a", "b"] }), "0"),
            (json!({ "type": "array", "minItems": 1 }), ","),
            (json!({ "type": "string", "minLength": 3 }), "ab"),
            (json!({ "type": "string", "format": "email" }), "no address"),
            (json!({ "type": "string", "format": "date" }), "today"),
            (json!({ "type": "string" }), "  "),
        ] {
            assert!(
                read(schema.clone(), true, answer).is_err(),
                "{schema} {answer}"
            );
        }
    }

    #[test]
    fn an_empty_answer_leaves_the_field_to_its_default() {
        assert_eq!(read(json!({ "type": "string" }), false, ""), Ok(None));
        let schema = json!({ "type": "string", "default": "x" });
        assert_eq!(read(schema, true, "\n"), Ok(None));
    }

    #[test]
    fn a_question_describes_the_expected_answer() {
        let schema = json!({
            "type": "string", "title": "Cut", "description": "how", "enum": ["slices", "piece"],
            "default": "piece",
        });
        let field = Field::new("cut", schema, true);
        assert_eq!(
            field.description(),
            [
                "Cut (how)",
                "  1. slices",
                "  2. piece",
                "default: \"piece\""
            ]
        );
        assert_eq!(field.expected(), "one of these; empty for the default");
    }
}
