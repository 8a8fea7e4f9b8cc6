//! The elicitation requests of servers.

use rmcp::model::{ElicitationSchema, JsonObject};

/// A form that a server asks a person to fill in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Form {
    /// The server's message to the person. Do not trust it.
    pub message: String,
    /// The fields.
    pub schema: ElicitationSchema,
}

impl Form {
    /// Fills in the default of every missing field.
    ///
    /// ```
    /// # use mcpvisor::Form;
    /// # fn example(form: &Form) -> serde_json::Value {
    /// // A field that the person did not touch gets its default.
    /// serde_json::Value::Object(form.with_defaults(Default::default()))
    /// # }
    /// ```
    pub fn with_defaults(&self, mut content: JsonObject) -> JsonObject {
        for (name, field) in &self.schema.properties {
            if content.contains_key(name) {
                continue;
            }
            let default = serde_json::to_value(field)
                .ok()
                .and_then(|mut field| Some(field.get_mut("default")?.take()));
            if let Some(default) = default.filter(|default| !default.is_null()) {
                content.insert(name.clone(), default);
            }
        }
        content
    }
}

/// A URL that a server asks a person to open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenUrl {
    /// The server's message to the person. Do not trust it.
    pub message: String,
    /// The URL. Show it first, and open it only if the person agrees.
    pub url: String,
    /// The server's id of this request.
    pub elicitation_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: serde_json::Value) -> Form {
        Form {
            message: String::new(),
            schema: serde_json::from_value(schema).unwrap(),
        }
    }

    #[test]
    fn defaults_fill_missing_fields_only() {
        let form = form(serde_json::json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "Ada" },
                "age": { "type": "integer", "default": 36 },
                "score": { "type": "number", "default": 9.5 },
                "keen": { "type": "boolean", "default": true },
                "status": { "type": "string", "enum": ["on", "off"], "default": "off" },
                "note": { "type": "string" },
            },
        }));
        let given = serde_json::json!({ "name": "Grace" });
        let content = form.with_defaults(given.as_object().unwrap().clone());
        assert_eq!(
            serde_json::Value::Object(content),
            serde_json::json!({
                "name": "Grace", "age": 36, "score": 9.5, "keen": true, "status": "off",
            })
        );
    }
}
