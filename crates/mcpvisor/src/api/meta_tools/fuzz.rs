//! A model may send any arguments; the answer is bounded text.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::Runtime;
use crate::for_model::TEXT_LIMIT;
use crate::fuzz::{budget, json as any_json};

/// Arguments of the known names, with any values.
fn arguments() -> impl Strategy<Value = Value> {
    let key = select(vec![
        "query",
        "limit",
        "detail",
        "names",
        "name",
        "arguments",
    ]);
    let name = select(vec![
        "mcpvisor__search_tools",
        "mcpvisor__describe_tools",
        "a__b",
        "search",
    ]);
    let value = prop_oneof![
        any_json(),
        name.prop_map(Value::from),
        proptest::collection::vec(any::<String>(), 0..25).prop_map(Value::from),
    ];
    let object = proptest::collection::vec((key.prop_map(str::to_owned), value), 0..4);
    let object = object.prop_map(|members| Value::Object(members.into_iter().collect()));
    prop_oneof![1 => any_json(), 5 => object]
}

/// A catalog with the definitions of the meta-tools themselves.
fn catalogs() -> [Arc<FleetCatalog>; 2] {
    [Arc::default(), catalog()]
}

proptest! {
    #![proptest_config(budget(200))]

    #[test]
    fn any_arguments_are_answered(tool in select(&MetaTool::ALL[..]), arguments in arguments()) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = tokio.block_on(async {
            let runtime = Runtime::builder().start().await.unwrap();
            let agent = runtime.client("agent").build();
            let exposed = format!("mcpvisor__{}", tool.name());
            agent.call(&exposed, arguments).unwrap().await.unwrap()
        });
        let text = answer.content[0].as_text().unwrap();
        prop_assert!(!text.text.is_empty() && text.text.len() <= TEXT_LIMIT);
    }

    #[test]
    fn answers_about_any_words_are_bounded(
        words in any::<String>(), limit in 1..=MAX_LIMIT, names in proptest::collection::vec(any::<String>(), 1..=MAX_NAMES),
    ) {
        for catalog in catalogs() {
            let found = answers::found(&catalog, &words, limit, Detail::Schema);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let described = answers::described(&catalog, &names);
            let described = described.unwrap_or_else(|problem| answers::error(&problem));
            for answer in [found, described] {
                prop_assert!(answer.content[0].as_text().unwrap().text.len() <= TEXT_LIMIT);
            }
        }
    }
}
