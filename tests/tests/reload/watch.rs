//! Watched config files, in real time.

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("mcpvisor-reload-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Left over from a killed process with the same pid.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A config of disabled servers, so that nothing is started.
fn file(names: &[&str]) -> String {
    let entry = |name: &&str| {
        (
            name.to_string(),
            serde_json::json!({ "command": "x", "enabled": false }),
        )
    };
    let servers: serde_json::Map<_, _> = names.iter().map(entry).collect();
    serde_json::json!({ "mcpServers": servers }).to_string()
}

async fn watched(path: &Path) -> (Runtime, ConfigWatch) {
    let config = Config::load(path).unwrap();
    let runtime = Runtime::builder().config(config).start().await.unwrap();
    let watch = runtime.watch_config(path);
    (runtime, watch)
}

async fn next(watch: &mut ConfigWatch) -> Result<mcpvisor::ReloadReport, mcpvisor::RejectedConfig> {
    tokio::time::timeout(DEADLINE, watch.changed())
        .await
        .expect("a change in time")
        .unwrap()
}

fn names(runtime: &Runtime) -> Vec<String> {
    runtime.servers().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_watched_file_is_followed_however_it_is_replaced() {
    let folder = Folder::new("replaced");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;

    // As editors do: a new file is renamed over the old one.
    fs::write(folder.path("draft"), file(&["a", "b"])).unwrap();
    fs::rename(folder.path("draft"), &path).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "b"), ServerChange::Added);
    assert_eq!(change(&report, "a"), ServerChange::Unchanged);

    // Deleted, and written again later.
    fs::remove_file(&path).unwrap();
    tokio::time::sleep(millis(700)).await;
    assert_eq!(
        names(&runtime),
        ["a", "b"],
        "a file that is gone changes nothing"
    );
    fs::write(&path, file(&["b"])).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Removed);

    // In place, in two parts: a partial file is not applied, or is read again.
    fs::write(&path, &file(&["b", "c"])[..10]).unwrap();
    tokio::time::sleep(millis(50)).await;
    fs::write(&path, file(&["b", "c"])).unwrap();
    while next(&mut watch).await.is_err() {}
    assert_eq!(names(&runtime), ["b", "c"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_watched_symlink_is_followed_to_where_it_points_now() {
    let folder = Folder::new("symlink");
    fs::write(folder.path("one.json"), file(&["a"])).unwrap();
    fs::write(folder.path("two.json"), file(&["b"])).unwrap();
    let path = folder.path("mcp.json");
    std::os::unix::fs::symlink(folder.path("one.json"), &path).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    std::os::unix::fs::symlink(folder.path("two.json"), folder.path("next")).unwrap();
    fs::rename(folder.path("next"), &path).unwrap();
    next(&mut watch).await.unwrap();
    assert_eq!(names(&runtime), ["b"]);
}

#[tokio::test]
async fn a_watched_file_that_does_not_parse_changes_nothing_and_is_an_event() {
    let folder = Folder::new("broken");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    let mut events = runtime.events();
    fs::write(&path, "{ \"mcpServers\": ").unwrap();
    let rejected = next(&mut watch).await.unwrap_err();
    assert_eq!(names(&runtime), ["a"]);
    let said = next_event(&mut events, |event| match &event.kind {
        EventKind::ConfigRejected { problem } => Some(problem.clone()),
        _ => None,
    })
    .await;
    assert_eq!(said, rejected.to_string());
    fs::write(&path, file(&["a", "b"])).unwrap();
    next(&mut watch).await.unwrap();
    assert_eq!(names(&runtime), ["a", "b"]);
    drop(runtime);
    let end = tokio::time::timeout(DEADLINE, watch.changed())
        .await
        .unwrap();
    assert!(end.is_none(), "the watch does not keep the runtime");
}

#[tokio::test]
async fn an_entry_that_became_unusable_leaves_its_server_as_it_was() {
    let folder = Folder::new("entry");
    let path = folder.path("mcp.json");
    fs::write(&path, file(&["a", "b"])).unwrap();
    let (runtime, mut watch) = watched(&path).await;
    let text = file(&["a", "b", "c"]).replacen("\"command\":\"x\"", "\"command\":7", 1);
    fs::write(&path, text).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
    assert_eq!(change(&report, "c"), ServerChange::Added);
    assert_eq!(report.problems.len(), 1);
    assert_eq!(names(&runtime), ["a", "b", "c"]);

    // An entry overridden by an invalid one of the same name is not used as a fallback.
    let text = r#"{"mcpServers":{"a":{"command":"y"},"a":{"command":7}}}"#;
    fs::write(&path, text).unwrap();
    let report = next(&mut watch).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
    assert_eq!(report.problems.len(), 2);
}

#[tokio::test]
async fn an_entry_that_became_unusable_and_is_switched_off_is_obeyed_in_that() {
    let scripted_server = ScriptedServer::new(Script::new());
    let (runtime, handle) = ready(server("a", scripted(&scripted_server))).await;
    let text = r#"{ "mcpServers": { "a": { "command": 7, "enabled": false } } }"#;
    let off = Config::from_json(text, |_| None).unwrap();
    let report = runtime.reload(off.clone()).await.unwrap();
    let what = vec!["enabled"];
    assert_eq!(change(&report, "a"), ServerChange::Adjusted { what });
    reaches(&handle, StateName::Disabled).await;
    let report = runtime.reload(off).await.unwrap();
    assert_eq!(change(&report, "a"), ServerChange::Kept);
}
