//! Every schema has a bounded signature, and every tool a bounded text.

use mcpvisor_core::ServerName;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use super::*;
use crate::catalog::FleetCatalog;
use crate::fuzz::{budget, json as any_json};

/// JSON of keywords in the places where a schema may have them.
fn schema() -> impl Strategy<Value = Value> {
    let kinds = vec!["string", "integer", "array", "object", "null", "odd"];
    let leaf = prop_oneof![
        any_json(),
        select(kinds).prop_map(|kind| json!({ "type": kind })),
        vec(any::<String>(), 0..9).prop_map(|values| json!({ "enum": values })),
        select(vec!["#/$defs/a", "#/$defs/b", "#", "#/a/b/c"]).prop_map(|it| json!({ "$ref": it })),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(|all| json!({ "anyOf": all })),
            vec(inner.clone(), 0..5).prop_map(|all| json!({ "oneOf": all, "type": "array" })),
            inner
                .clone()
                .prop_map(|items| json!({ "type": ["array", "null"], "items": items })),
            inner.prop_map(|items| json!({ "items": items })),
        ]
    })
}

proptest! {
    #![proptest_config(budget(300))]

    #[test]
    fn tools_of_any_schema_are_shown_within_limits(
        name in any::<String>(),
        description in any::<String>(),
        properties in vec(("[a-z]{1,3}|\\PC{0,9}", schema()), 0..40),
        required in prop_oneof![vec(any::<String>(), 0..5).prop_map(Value::from), any_json()],
        defs in (schema(), schema()),
    ) {
        let properties: Map<String, Value> = properties.into_iter().collect();
        let schema = json!({
            "properties": properties, "required": required, "$defs": { "a": defs.0, "b": defs.1 },
        });
        let schema = schema.as_object().cloned().unwrap_or_default();
        let tool = Tool::new(name, description, schema);
        prop_assert!(signature(&tool).len() <= 1_024 && signature(&tool).ends_with(')'));
        let catalog = FleetCatalog::of(&ServerName::reserved(), vec![tool]);
        let tool = catalog.tools().next().unwrap();
        prop_assert!(tool_text(tool, Detail::Name).len() <= 64);
        let text = tool_text(tool, Detail::Signature);
        prop_assert!(text.len() <= 1_024 + 2 + 200, "{}", text);
        prop_assert!(!text.contains('\n'), "{}", text);
        let whole = tool_text(tool, Detail::Schema);
        let tokens = estimated_tokens(tool);
        prop_assert!(tokens * 4 >= whole.chars().count() && tokens <= whole.chars().count());
    }
}
