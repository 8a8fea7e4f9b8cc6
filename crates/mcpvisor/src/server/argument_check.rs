//! Arguments of a call against the schema of its tool, before anything is sent.
//!
//! The schema is the server's, so it is bounded: nothing outside of it is fetched, patterns run in
//! linear time, and what takes too long is not checked, nor ever again. A check cannot be stopped, so
//! one that goes on costs its server the checks of all others meanwhile, and the host one thread. A
//! schema that makes no sense checks nothing: the server will judge by itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jsonschema::{Draft, PatternOptions, Validator};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::api::error::ArgumentProblem;
use crate::detached::detached;

/// A larger schema is not compiled, in bytes of JSON.
const MAX_SCHEMA: usize = 256 * 1024;

/// Compiling and checking together may take this long.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

/// A check that takes longer than this says only whether the arguments fit.
const DETAILS: Duration = Duration::from_millis(20);

/// How often it is looked at how long it takes.
const LOOKS: usize = 3;

/// The memory that one pattern of a schema may take.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Compiled schemas that are kept of one server; beyond that all are compiled anew.
const MAX_KEPT: usize = 1_024;

/// Problems of one call that are told.
const MAX_PROBLEMS: usize = 10;

/// The longest text about one problem, in characters.
const MAX_TEXT: usize = 300;

/// Checks of one server that run at once.
const AT_ONCE: usize = 2;

/// The compiled schemas of one server's tools.
pub(crate) struct ArgumentChecks {
    kept: Mutex<HashMap<String, Compiled>>,
    running: Arc<Semaphore>,
}

impl Default for ArgumentChecks {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            running: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

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
        if let Some(None) = self.compiled(tool, schema) {
            return Vec::new();
        }
        let place = Arc::clone(&self.running).acquire_owned();
        let Ok(Ok(place)) = tokio::time::timeout(LONGEST_CHECK, place).await else {
            return Vec::new();
        };
        let checked = detached("arguments", {
            let (checks, tool, schema) = (Arc::clone(self), tool.to_owned(), Arc::clone(schema));
            let arguments = Value::Object(arguments.cloned().unwrap_or_default());
            move || {
                let validator = checks.validator(&tool, &schema);
                let found = validator.map(|it| problems(&it, &arguments, DETAILS));
                // Held until it is done, whether anybody waits for it or not.
                drop(place);
                found.unwrap_or_default()
            }
        });
        let Ok(checked) = checked else {
            return Vec::new();
        };
        // A task of its own, so that what takes too long is known as such though its caller has no
        // time to wait for that.
        let judged = Arc::clone(self).judge(tool.to_owned(), Arc::clone(schema), checked);
        tokio::spawn(judged).await.unwrap_or_default()
    }

    /// Waits for a check. A schema that takes too long is not checked any more.
    async fn judge(
        self: Arc<Self>,
        tool: String,
        schema: Arc<JsonObject>,
        checked: oneshot::Receiver<Vec<ArgumentProblem>>,
    ) -> Vec<ArgumentProblem> {
        match tokio::time::timeout(LONGEST_CHECK, checked).await {
            Ok(problems) => problems.unwrap_or_default(),
            Err(_) => {
                self.keep(&tool, &schema, None);
                Vec::new()
            }
        }
    }

    fn validator(&self, tool: &str, schema: &Arc<JsonObject>) -> Option<Arc<Validator>> {
        if let Some(kept) = self.compiled(tool, schema) {
            return kept;
        }
        let validator = compile(schema).map(Arc::new);
        self.keep(tool, schema, validator.clone());
        validator
    }

    /// What was made of a schema; inside, nothing if it checks nothing.
    fn compiled(&self, tool: &str, schema: &Arc<JsonObject>) -> Option<Option<Arc<Validator>>> {
        let kept = self.kept();
        let known = kept.get(tool)?;
        let same = Arc::ptr_eq(&known.schema, schema) || known.schema == *schema;
        same.then(|| known.validator.clone())
    }

    fn keep(&self, tool: &str, schema: &Arc<JsonObject>, validator: Option<Arc<Validator>>) {
        let compiled = Compiled {
            schema: Arc::clone(schema),
            validator,
        };
        let mut kept = self.kept();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(tool.to_owned(), compiled);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Compiled>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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

/// What is wrong. Only to know whether anything is takes no memory; to know what it is may take as much
/// of it as time, so that is left out where it took long.
fn problems(validator: &Validator, arguments: &Value, patience: Duration) -> Vec<ArgumentProblem> {
    if validator.is_valid(arguments) {
        return Vec::new();
    }
    // More than once, because others may have had the processor meanwhile.
    let is_quick = (0..LOOKS).any(|_| {
        let begun = Instant::now();
        let _ = validator.is_valid(arguments);
        begun.elapsed() < patience
    });
    if !is_quick {
        return vec![ArgumentProblem {
            field: String::new(),
            problem: "the arguments do not fit the tool's schema".to_owned(),
        }];
    }
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

    /// A schema that takes exponential time to check.
    fn endless(depth: usize) -> Value {
        let mut definitions = serde_json::Map::new();
        for level in 0..depth {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            definitions.insert(format!("d{level}"), json!({ "anyOf": [next, next] }));
        }
        definitions.insert(format!("d{depth}"), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/d0", "$defs": definitions })
    }

    #[test]
    fn what_took_long_to_check_is_not_told_in_detail() {
        let schema = object(json!({ "required": ["n"] }));
        let validator = compile(&schema).unwrap();
        let told = |patience| {
            let found = problems(&validator, &json!({}), patience);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(LONGEST_CHECK), ["\"n\" is a required property"]);
        let plain = ["the arguments do not fit the tool's schema"];
        assert_eq!(told(Duration::ZERO), plain);
        assert_eq!(problems(&validator, &json!({ "n": 1 }), Duration::ZERO), []);
    }

    #[test]
    fn schemas_that_take_for_ever_cost_few_threads_and_are_tried_once() {
        let host = tokio::runtime::Runtime::new().unwrap();
        host.block_on(async {
            let checks = Arc::new(ArgumentChecks::default());
            let slow = object(endless(40));
            let begun = std::time::Instant::now();
            for number in 0..AT_ONCE {
                let tool = format!("slow-{number}");
                assert_eq!(checks.check(&tool, &slow, None).await, []);
            }
            for _ in 0..100 {
                assert_eq!(checks.check("slow-0", &slow, None).await, []);
            }
            assert!(
                begun.elapsed() < 10 * LONGEST_CHECK,
                "{:?}",
                begun.elapsed()
            );
            // Whatever is asked next of this server finds no place, and waits no longer than it may.
            let other = object(json!({ "required": ["a"] }));
            assert_eq!(checks.check("other", &other, None).await, []);
            assert_eq!(checks.running.available_permits(), 0);
        });
        // It does not wait for the checks that go on.
        drop(host);
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
