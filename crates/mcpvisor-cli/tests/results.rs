//! Results as servers send them: every kind of content, links, files, and checks of results.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

mod common;

use common::Folder;
use serde_json::{Value, json};

/// Every kind of content, with annotations, metadata and members that no version of the protocol
/// has.
fn every_kind() -> Value {
    let annotations = json!({ "audience": ["user"], "priority": 0.6, "mood": "calm" });
    let icons = json!([{ "src": "a.png" }, { "src": "b.png", "sizes": ["any"], "depth": 24 }]);
    let text =
        json!({ "uri": "notes://today/note.md", "text": "# today", "_meta": { "m": 1 }, "rev": 7 });
    let blob =
        json!({ "uri": "notes://scan.dat", "mimeType": "x/y", "blob": "AAEC/w==", "etag": "e" });
    json!([
        { "type": "text", "text": "hello", "annotations": annotations, "_meta": { "m": 1 }, "lang": "en" },
        { "type": "image", "data": "AAEC/w==", "mimeType": "image/png", "annotations": annotations, "width": 3 },
        { "type": "audio", "data": "AQ==", "mimeType": "audio/wav", "_meta": {}, "seconds": 1.5 },
        { "type": "resource_link", "uri": "shop://prices", "name": "prices", "title": "Prices", "size": 3, "icons": icons, "annotations": annotations, "hash": "h" },
        { "type": "resource", "resource": text, "annotations": annotations, "more": [1] },
        { "type": "resource", "resource": blob, "_meta": { "m": 2 } },
        { "type": "video", "data": "AAAA", "mimeType": "video/mp4", "frames": { "n": 2 } },
    ])
}

#[test]
fn every_kind_of_content_comes_out_as_the_server_sent_it() {
    let folder = Folder::with_shop();
    let result = json!({
        "content": every_kind(),
        "structuredContent": { "n": 1, "_meta": { "own": true } },
        "isError": false,
        "_meta": { "trace": "t" },
        "cost": { "eur": 2 },
    });
    folder.answers("tools/call", &result);
    let ran = folder.run(&["call", "shop", "photo", "--json"]);
    assert_eq!(ran.exits(0).document(), result);

    let blocks = every_kind();
    let messages = blocks.as_array().unwrap().iter();
    let messages = messages.map(|it| json!({ "role": "user", "content": it, "id": 1 }));
    let prompt = json!({ "messages": messages.collect::<Vec<_>>(), "more": true });
    folder.answers("prompts/get", &prompt);
    let ran = folder.run(&["prompt", "shop", "recipe", "cheese=brie", "--json"]);
    assert_eq!(ran.exits(0).document(), prompt);

    let read = json!({ "contents": [blocks[4]["resource"], blocks[5]["resource"]], "next": 1 });
    folder.answers("resources/read", &read);
    let ran = folder.run(&["read", "shop", "shop://prices", "--json"]);
    assert_eq!(ran.exits(0).document(), read);
}

#[test]
fn content_of_an_unknown_kind_is_named_and_the_rest_is_shown() {
    let folder = Folder::with_shop();
    folder.answers("tools/call", &json!({ "content": every_kind() }));
    let ran = folder.run(&["call", "shop", "photo"]);
    ran.exits(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "hello");
    assert_eq!(lines[4], "# today", "{}", ran.stdout);
    assert_eq!(lines[6], "[unsupported content: video]");
}

#[test]
fn images_audio_and_resources_are_saved() {
    let folder = Folder::with_shop();
    folder.answers("tools/call", &json!({ "content": every_kind() }));
    let ran = folder.run(&["call", "shop", "photo", "--out", "files"]);
    ran.exits(0);
    assert_eq!(ran.stdout.matches("saved as files/").count(), 4);
    for (name, bytes) in [
        ("photo.png", &[0, 1, 2, 255][..]),
        ("photo.wav", &[1]),
        ("note.md", b"# today"),
        ("scan.dat", &[0, 1, 2, 255]),
    ] {
        assert!(
            ran.stdout.contains(&format!("saved as files/{name}]")),
            "{}",
            ran.stdout
        );
        assert_eq!(
            std::fs::read(folder.path("files").join(name)).unwrap(),
            bytes
        );
    }
    let saved = std::fs::read_dir(folder.path("files")).unwrap();
    assert_eq!(saved.count(), 4);
}

#[test]
fn links_are_followed_on_request() {
    let folder = Folder::with_shop();
    let link = |uri: &str| json!({ "type": "resource_link", "uri": uri, "name": "n", "rev": 1 });
    let text = json!({ "type": "text", "text": "two links" });
    let content = json!([link("shop://prices"), text, link("shop://prices")]);
    folder.answers("tools/call", &json!({ "content": content }));
    let contents = json!({ "uri": "shop://prices", "text": "apples 3", "etag": "e" });
    folder.answers("resources/read", &json!({ "contents": [contents] }));

    let ran = folder.run(&["call", "shop", "photo"]);
    ran.exits(0);
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
    let ran = folder.run(&["call", "shop", "photo", "--follow"]);
    ran.exits(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let expected = ["[resource shop://prices]", "apples 3", "two links"];
    assert_eq!(lines, [&expected[..], &expected[..2]].concat());

    let ran = folder.run(&["call", "shop", "photo", "--follow", "--json"]);
    let embedded = json!({ "type": "resource", "resource": contents });
    let expected = json!([content[0], embedded, text, content[2], embedded]);
    assert_eq!(ran.exits(0).document(), json!({ "content": expected }));

    folder.refuses("resources/read", "no such thing");
    let ran = folder.run(&["call", "shop", "photo", "--follow"]);
    ran.exits(5)
        .says("cannot read shop://prices")
        .says("no such thing");
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);

    let ran = folder.run(&["call", "shop", "photo", "--follow", "--json"]);
    assert_eq!(ran.exits(5).document(), json!({ "content": content }));
    ran.says("cannot read shop://prices")
        .says("\"server\":\"shop\"");
}

#[test]
fn what_comes_after_too_many_links_is_shown() {
    let folder = Folder::with_shop();
    let link = |at| json!({ "type": "resource_link", "uri": format!("shop://{at}"), "name": "n" });
    let mut content: Vec<Value> = (0..70).map(link).collect();
    content.push(json!({ "type": "text", "text": "the end" }));
    folder.answers("tools/call", &json!({ "content": content }));
    let contents = json!({ "uri": "shop://prices", "text": "apples 3" });
    folder.answers("resources/read", &json!({ "contents": [contents] }));

    let ran = folder.run(&["call", "shop", "photo", "--follow"]);
    ran.exits(5)
        .says("only the first 64 links were read, 6 were not");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 70 + 64 + 1, "{}", ran.stdout);
    assert_eq!(
        lines[lines.len() - 2..],
        ["[resource shop://69]", "the end"]
    );
    let ran = folder.run(&["call", "shop", "photo", "--follow", "--json"]);
    ran.exits(5).says("\"code\":\"links_not_read\"");
}

#[test]
fn a_result_that_does_not_match_its_schema_is_an_error_with_the_result() {
    let folder = Folder::with_shop();
    let output = json!({ "type": "object", "required": ["n"] });
    let tool =
        json!({ "name": "photo", "inputSchema": { "type": "object" }, "outputSchema": output });
    folder.answers("tools/list", &json!({ "tools": [tool] }));
    let result = json!({ "content": [], "structuredContent": { "m": 1 } });
    folder.answers("tools/call", &result);
    folder.edits(|shop| shop["checkResults"] = json!("fail"));
    let ran = folder.run(&["call", "shop", "photo", "--json"]);
    let error = ran.exits(5).error();
    assert_eq!(error["code"], "invalid_result");
    assert_eq!(error["data"], result);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("\"n\" is a required property")
    );

    folder.edits(|shop| shop["checkResults"] = json!("warn"));
    let ran = folder.run(&["call", "shop", "photo", "--json"]);
    assert_eq!(ran.exits(0).document(), result);
    folder.edits(|shop| shop["checkResults"] = json!("sometimes"));
    let ran = folder.run(&["call", "shop", "photo"]);
    ran.exits(1).says("checkResults");
}
