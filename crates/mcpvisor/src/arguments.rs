//! Arguments of a call against the schema of its tool, before anything is sent.
//!
//! The schema is the server's, so it is bounded: nothing outside of it is fetched, patterns run in
//! linear time, and what takes too long is not checked. A schema that makes no sense checks nothing:
//! the server will judge by itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonschema::{Draft, PatternOptions, Validator};
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::error::ArgumentProblem;

/// A larger schema is not compiled, in bytes of JSON.
const MAX_SCHEMA: usize = 256 * 1024;

/// Compiling and checking together may take this long.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

/// The memory that one pattern of a schema may take.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Compiled schemas that are kept of one server; beyond that all are compiled anew.
const MAX_KEPT: usize = 1_024;

/// Problems of one call that are told.
const MAX_PROBLEMS: usize = 10;

/// The longest text about one problem, in characters.
const MAX_TEXT: usize = 300;

/// The compiled schemas of one server's tools.
#[derive(Default)]
pub(crate) struct ArgumentChecks(Mutex<HashMap<String, Compiled>>);

struct Compiled {
    schema: Arc<JsonObject>,
    /// None if the schema checks nothing.
    validator: Option<Arc<Validator>>,
}

impl fmt::Debug for ArgumentChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArgumentChecks")
    }
}

impl ArgumentChecks {
    /// Checks the arguments of a tool. Not on an async worker: the schema may be anything.
    pub(crate) async fn check(
        self: &Arc<Self>,
        tool: &str,
        schema: &Arc<JsonObject>,
        arguments: Option<&JsonObject>,
    ) -> Vec<ArgumentProblem> {
        let (checks, tool, schema) = (Arc::clone(self), tool.to_owned(), Arc::clone(schema));
        let arguments = Value::Object(arguments.cloned().unwrap_or_default());
        let checked = tokio::task::spawn_blocking(move || {
            let validator = checks.validator(&tool, &schema);
            validator.map_or_else(Vec::new, |validator| problems(&validator, &arguments))
        });
        match tokio::time::timeout(LONGEST_CHECK, checked).await {
            Ok(problems) => problems.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    fn validator(&self, tool: &str, schema: &Arc<JsonObject>) -> Option<Arc<Validator>> {
        if let Some(kept) = self.kept().get(tool)
            && (Arc::ptr_eq(&kept.schema, schema) || kept.schema == *schema)
        {
            return kept.validator.clone();
        }
        let validator = compile(schema).map(Arc::new);
        let compiled = Compiled {
            schema: Arc::clone(schema),
            validator: validator.clone(),
        };
        let mut kept = self.kept();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(tool.to_owned(), compiled);
        validator
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Compiled>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn compile(schema: &JsonObject) -> Option<Validator> {
    let schema = Value::Object(schema.clone());
    if schema.to_string().len() > MAX_SCHEMA {
        return None;
    }
    let patterns = PatternOptions::regex()
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline()
        .build(&schema)
        .ok()
}

fn problems(validator: &Validator, arguments: &Value) -> Vec<ArgumentProblem> {
    let errors = validator.iter_errors(arguments).take(MAX_PROBLEMS);
    let told = errors.map(|error| ArgumentProblem {
        field: error.instance_path().to_string(),
        problem: error.masked().to_string().chars().take(MAX_TEXT).collect(),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Arc<JsonObject> {
        Arc::new(value.as_object().unwrap().clone())
    }

    async fn check(schema: Value, arguments: Value) -> Vec<String> {
        let checks = Arc::new(ArgumentChecks::default());
        let arguments = object(arguments);
        let found = checks.check("t", &object(schema), Some(&arguments)).await;
        found.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn what_is_wrong_is_named_by_its_field_and_without_its_value() {
        let schema = json!({
            "type": "object",
            "properties": { "n": { "type": "integer" }, "list": { "items": { "maxLength": 3 } } },
            "required": ["n"],
            "additionalProperties": false
        });
        assert_eq!(
            check(schema.clone(), json!({ "n": 1, "list": ["abc"] })).await,
            [""; 0]
        );
        let missing = check(schema.clone(), json!({})).await;
        assert_eq!(missing, ["\"n\" is a required property"]);
        let wrong = check(
            schema.clone(),
            json!({ "n": "s3cret", "list": ["ok", "s3cret"] }),
        )
        .await;
        assert_eq!(wrong.len(), 2);
        assert!(wrong.iter().any(|it| it.starts_with("/n: ")), "{wrong:?}");
        assert!(
            wrong.iter().any(|it| it.starts_with("/list/1: ")),
            "{wrong:?}"
        );
        assert!(!wrong.concat().contains("s3cret"), "{wrong:?}");
        let unknown = check(schema, json!({ "n": 1, "m": 2 })).await;
        assert!(unknown[0].contains('m'), "{unknown:?}");
    }

    #[tokio::test]
    async fn a_schema_that_makes_no_sense_or_leads_elsewhere_checks_nothing() {
        for schema in [
            json!({ "type": 7 }),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "properties": { "a": { "pattern": "(" } } }),
            json!({ "description": "x".repeat(MAX_SCHEMA) , "type": "array" }),
        ] {
            let shown: String = schema.to_string().chars().take(60).collect();
            assert_eq!(check(schema, json!({ "a": "b" })).await, [""; 0], "{shown}");
        }
    }

    #[tokio::test]
    async fn a_hostile_pattern_takes_no_time() {
        let schema = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } });
        let began = std::time::Instant::now();
        let found = check(schema, json!({ "a": "a".repeat(50_000) + "b" })).await;
        assert_eq!(found.len(), 1);
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_schema_is_compiled_once_until_it_changes() {
        let checks = Arc::new(ArgumentChecks::default());
        let first = object(json!({ "required": ["a"] }));
        checks.check("t", &first, None).await;
        let compiled = checks.kept().get("t").unwrap().validator.clone().unwrap();
        checks
            .check("t", &object(json!({ "required": ["a"] })), None)
            .await;
        let again = checks.kept().get("t").unwrap().validator.clone().unwrap();
        assert!(Arc::ptr_eq(&compiled, &again));
        let other = object(json!({ "required": ["b"] }));
        let found = checks.check("t", &other, None).await;
        assert_eq!(found[0].problem, "\"b\" is a required property");
    }
}
