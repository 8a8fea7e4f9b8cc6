//! Checks the arguments and the results of calls against the schemas of their tools.
//!
//! The schema comes from the server, so it is untrusted: no external reference is fetched, patterns
//! run in linear time, and a schema that takes too long is never checked again. A check cannot be
//! stopped, so an endless one occupies a thread and blocks further checks of its server. An invalid
//! schema checks nothing: the server validates arguments itself, and a result is delivered as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jsonschema::{Draft, PatternOptions, Validator};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::api::error::SchemaProblem;
use crate::detached::detached;
use crate::mutex::lock;

/// Larger schemas are not compiled, in bytes of JSON.
const MAX_SCHEMA: usize = 256 * 1024;

/// Limit of compiling and checking together.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// A check that takes longer reports no details.
const DETAILS_LIMIT: Duration = Duration::from_millis(20);

/// Measurements of how long a check takes.
const MEASUREMENTS: usize = 3;

/// Memory of one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Cached compiled schemas of one server; the cache is cleared beyond that.
const MAX_CACHED: usize = 1_024;

/// Reported problems per check.
const MAX_PROBLEMS: usize = 10;

/// Length of the text about one problem, in characters.
const MAX_TEXT: usize = 300;

/// The problem of a value whose details take too long to collect.
const MISMATCH: &str = "it does not match the tool's schema";

/// Concurrent checks of one server.
const MAX_CONCURRENT: usize = 2;

/// The compiled schemas of one server's tools, either those of arguments or those of results.
pub(crate) struct SchemaChecks {
    cache: Mutex<HashMap<String, Compiled>>,
    running: Arc<Semaphore>,
}

impl Default for SchemaChecks {
    fn default() -> Self {
        Self {
            cache: Mutex::default(),
            running: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }
}

struct Compiled {
    schema: Arc<JsonObject>,
    /// None if the schema is invalid or takes too long.
    validator: Option<Arc<Validator>>,
}

impl SchemaChecks {
    /// Checks a value against the schema of a tool, on a thread, since the schema is untrusted. The
    /// thread has dropped the value when the check ends in time.
    pub(crate) async fn check(
        self: &Arc<Self>,
        tool: &str,
        schema: &Arc<JsonObject>,
        value: &Arc<Value>,
    ) -> Vec<SchemaProblem> {
        if let Some(None) = self.compiled(tool, schema) {
            return Vec::new();
        }
        let permit = Arc::clone(&self.running).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(CHECK_TIMEOUT, permit).await else {
            return Vec::new();
        };
        let checked = detached("schema", {
            let (checks, tool, schema) = (Arc::clone(self), tool.to_owned(), Arc::clone(schema));
            let value = Arc::clone(value);
            move || {
                let validator = checks.validator(&tool, &schema);
                let found = validator.map(|it| problems(&it, &value, DETAILS_LIMIT));
                drop(value);
                // Released when the check ends, even if its caller has given up.
                drop(permit);
                found.unwrap_or_default()
            }
        });
        let Ok(checked) = checked else {
            return Vec::new();
        };
        // A task, so that a slow schema is recorded even if its caller gives up before the timeout.
        let result = Arc::clone(self).wait_for(tool.to_owned(), Arc::clone(schema), checked);
        tokio::spawn(result).await.unwrap_or_default()
    }

    /// Waits for a check. A schema that takes too long is not checked again.
    async fn wait_for(
        self: Arc<Self>,
        tool: String,
        schema: Arc<JsonObject>,
        checked: oneshot::Receiver<Vec<SchemaProblem>>,
    ) -> Vec<SchemaProblem> {
        match tokio::time::timeout(CHECK_TIMEOUT, checked).await {
            Ok(problems) => problems.unwrap_or_default(),
            Err(_) => {
                self.insert(&tool, &schema, None);
                Vec::new()
            }
        }
    }

    fn validator(&self, tool: &str, schema: &Arc<JsonObject>) -> Option<Arc<Validator>> {
        if let Some(cached) = self.compiled(tool, schema) {
            return cached;
        }
        let validator = compile(schema).map(Arc::new);
        self.insert(tool, schema, validator.clone());
        validator
    }

    /// The cached result for a schema; the inner option is none if it checks nothing.
    fn compiled(&self, tool: &str, schema: &Arc<JsonObject>) -> Option<Option<Arc<Validator>>> {
        let cache = lock(&self.cache);
        let known = cache.get(tool)?;
        let same = Arc::ptr_eq(&known.schema, schema) || known.schema == *schema;
        same.then(|| known.validator.clone())
    }

    fn insert(&self, tool: &str, schema: &Arc<JsonObject>, validator: Option<Arc<Validator>>) {
        let compiled = Compiled {
            schema: Arc::clone(schema),
            validator,
        };
        let mut cache = lock(&self.cache);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(tool.to_owned(), compiled);
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

/// The problems of a value. To check takes no memory; to collect details may take as much
/// memory as time, so a slow check reports none.
fn problems(validator: &Validator, value: &Value, limit: Duration) -> Vec<SchemaProblem> {
    if validator.is_valid(value) {
        return Vec::new();
    }
    // Measured more than once, because other threads may have had the processor meanwhile.
    let is_quick = (0..MEASUREMENTS).any(|_| {
        let begun = Instant::now();
        let _ = validator.is_valid(value);
        begun.elapsed() < limit
    });
    if !is_quick {
        return vec![SchemaProblem {
            field: String::new(),
            problem: MISMATCH.to_owned(),
        }];
    }
    let errors = validator.iter_errors(value).take(MAX_PROBLEMS);
    let problems = errors.map(|error| SchemaProblem {
        field: error.instance_path().to_string(),
        problem: error.masked().to_string().chars().take(MAX_TEXT).collect(),
    });
    problems.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Arc<JsonObject> {
        Arc::new(value.as_object().unwrap().clone())
    }

    fn nothing() -> Arc<Value> {
        Arc::new(json!({}))
    }

    async fn check(schema: Value, value: Value) -> Vec<String> {
        let checks = Arc::new(SchemaChecks::default());
        let found = checks.check("t", &object(schema), &Arc::new(value)).await;
        found.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_problem_names_its_field_but_not_the_value() {
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
    async fn an_invalid_or_external_schema_checks_nothing() {
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
    async fn a_hostile_pattern_is_checked_in_linear_time() {
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
    fn a_slow_check_reports_no_details() {
        let schema = object(json!({ "required": ["n"] }));
        let validator = compile(&schema).unwrap();
        let reported = |limit| {
            let found = problems(&validator, &json!({}), limit);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(reported(CHECK_TIMEOUT), ["\"n\" is a required property"]);
        assert_eq!(reported(Duration::ZERO), [MISMATCH]);
        assert_eq!(problems(&validator, &json!({ "n": 1 }), Duration::ZERO), []);
    }

    #[test]
    fn endless_schemas_occupy_few_threads_and_are_tried_once() {
        let host = tokio::runtime::Runtime::new().unwrap();
        host.block_on(async {
            let checks = Arc::new(SchemaChecks::default());
            let slow = object(endless(40));
            let begun = std::time::Instant::now();
            for number in 0..MAX_CONCURRENT {
                let tool = format!("slow-{number}");
                assert_eq!(checks.check(&tool, &slow, &nothing()).await, []);
            }
            for _ in 0..100 {
                assert_eq!(checks.check("slow-0", &slow, &nothing()).await, []);
            }
            assert!(
                begun.elapsed() < 10 * CHECK_TIMEOUT,
                "{:?}",
                begun.elapsed()
            );
            // Further checks of this server time out.
            let other = object(json!({ "required": ["a"] }));
            assert_eq!(checks.check("other", &other, &nothing()).await, []);
            assert_eq!(checks.running.available_permits(), 0);
        });
        // The runtime does not wait for the endless checks.
        drop(host);
    }

    #[tokio::test]
    async fn a_schema_is_compiled_once_until_it_changes() {
        let checks = Arc::new(SchemaChecks::default());
        let first = object(json!({ "required": ["a"] }));
        checks.check("t", &first, &nothing()).await;
        let compiled = lock(&checks.cache)
            .get("t")
            .unwrap()
            .validator
            .clone()
            .unwrap();
        checks
            .check("t", &object(json!({ "required": ["a"] })), &nothing())
            .await;
        let again = lock(&checks.cache)
            .get("t")
            .unwrap()
            .validator
            .clone()
            .unwrap();
        assert!(Arc::ptr_eq(&compiled, &again));
        let other = object(json!({ "required": ["b"] }));
        let found = checks.check("t", &other, &nothing()).await;
        assert_eq!(found[0].problem, "\"b\" is a required property");
    }
}
