//! `mcpvisor-authserver` as a program, controlled over HTTP.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::plain_client::{CALLBACK, VERIFIER, authorization, call, get, post, post_json, text};

/// The program, which is killed when this is dropped.
struct Program {
    child: Child,
    urls: Value,
}

impl Program {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcpvisor-authserver"))
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let urls = serde_json::from_str(&line).unwrap();
        Self { child, urls }
    }

    async fn control(&self, command: &str, form: &[(&str, &str)]) -> Value {
        let reply = post(&format!("{}/{command}", text(&self.urls, "control")), form).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    fn issuer(&self) -> String {
        text(&self.urls, "issuer")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn it_serves_and_is_controlled_from_another_process() {
    let mut program = Program::start(&["--fault", "status=500@register*1", "--lifetime=5000"]);
    let issuer = program.issuer();
    let mcp = text(&program.urls, "mcp");
    let asked = json!({ "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none" });
    let register = format!("{issuer}/register");
    assert_eq!(post_json(&register, &asked).await.status, 500);
    let client = text(&post_json(&register, &asked).await.json(), "client_id");

    let query = authorization(&[("client_id", &client), ("resource", &mcp)]);
    let callback = get(&format!("{issuer}/authorize?{query}")).await.callback();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", &client),
        ("code", callback.get("code").unwrap()),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let tokens = post(&format!("{issuer}/token"), &form).await.json();
    assert_eq!(tokens["expires_in"], 5);
    let access = text(&tokens, "access_token");

    // 400: the server has sessions, and this is none; the guard let the request pass.
    assert_eq!(call(&mcp, &access, "echo", json!({})).await.status, 400);
    let expired = program.control("expire-access-tokens", &[]).await;
    assert_eq!(expired["expired"], 1);
    assert_eq!(call(&mcp, &access, "echo", json!({})).await.status, 401);
    let counters = program.control("mcp", &[("key", "k")]).await;
    assert_eq!(
        (&counters["accepted"], &counters["unauthorized"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(counters["runs"], 0);

    let fault = [("fault", "invalid-grant"), ("on", "token"), ("times", "1")];
    program.control("fault", &fault).await;
    let refresh_token = text(&tokens, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", &client),
        ("refresh_token", &refresh_token),
    ];
    let url = format!("{issuer}/token");
    assert_eq!(post(&url, &form).await.json()["error"], "invalid_grant");
    assert_eq!(post(&url, &form).await.status, 200);
    let state = program.control("state", &[]).await;
    assert_eq!(
        (&state["rotated"], &state["refreshes"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(state["requests"]["token"], 3);
    let requests = program.control("requests", &[]).await;
    assert_eq!(requests[0]["endpoint"], "register");
    let current = program.control("tokens", &[]).await;
    assert_ne!(current["refresh"][0]["token"], refresh_token.as_str());

    drop(program.child.stdin.take());
    assert!(program.child.wait().unwrap().success());
}

#[tokio::test]
async fn clients_tokens_and_scopes_can_be_set_from_another_process() {
    let program = Program::start(&["--no-registration", "--modern"]);
    let mcp = text(&program.urls, "mcp");
    let client = [
        ("id", "poster"),
        ("secret", "s"),
        ("method", "client_secret_post"),
    ];
    program.control("add-client", &client).await;
    let form = [
        ("client_id", "poster"),
        ("scope", "mcp"),
        ("resource", &mcp),
    ];
    let tokens = program.control("issue-tokens", &form).await;
    let scopes = [("tool", "run"), ("scopes", "mcp:write")];
    program.control("tool-scopes", &scopes).await;
    let access = text(&tokens, "access_token");
    let run = call(&mcp, &access, "run", json!({ "key": "k" })).await;
    assert_eq!(run.status, 403);
    let refresh_token = text(&tokens, "refresh_token");
    let form = [("token", refresh_token.as_str())];
    let revoked = program.control("revoke-refresh-token", &form).await;
    assert_eq!(revoked["revoked"], true);
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", "poster"),
        ("client_secret", "s"),
        ("refresh_token", &refresh_token),
    ];
    let refused = post(&format!("{}/token", program.issuer()), &form).await;
    assert_eq!(refused.json()["error"], "invalid_grant");
    let unknown = format!("{}/unknown", text(&program.urls, "control"));
    assert_eq!(get(&unknown).await.status, 400);
}

#[test]
fn it_lists_its_faults_and_refuses_unknown_options() {
    let run = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcpvisor-authserver"));
        command.arg(word).stdin(Stdio::null()).output().unwrap()
    };
    let listed = String::from_utf8(run("--list-faults").stdout).unwrap();
    assert!(listed.contains("drop-after"), "{listed}");
    assert_eq!(run("--unknown").status.code(), Some(2));
}
