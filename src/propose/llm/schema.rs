//! The shape of a knob change as a JSON schema, for servers that can hold a reply to one. Elsewhere the prompt
//! says it and the reply is read as text.

use serde_json::{Map, Value, json};

use crate::llm::Schema;
use crate::source::{KnobValue, Source};

/// An analysis, a plan, and settings of the source's own knobs.
pub(super) fn settings(source: &Source) -> Schema {
    let knobs = source.space().knobs();
    let properties: Map<String, Value> = knobs
        .iter()
        .map(|knob| {
            let values: Vec<Value> = knob
                .values
                .iter()
                .map(|value| match value {
                    KnobValue::Int(int) => json!(int),
                    KnobValue::Text(text) => json!(text),
                })
                .collect();
            (knob.name.clone(), json!({ "enum": values }))
        })
        .collect();
    let names: Vec<&str> = knobs.iter().map(|knob| knob.name.as_str()).collect();
    Schema {
        name: "knob_change".to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "analysis": {"type": "string"},
                "plan": {"type": "string"},
                "settings": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": properties,
                        "required": names,
                        "additionalProperties": false,
                    },
                },
            },
            "required": ["analysis", "plan", "settings"],
            "additionalProperties": false,
        }),
    }
}
