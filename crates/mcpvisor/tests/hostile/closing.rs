//! A call that was said not to be sent is not sent, though its connection closes with it at hand.

use super::*;

#[tokio::test]
async fn a_call_that_was_taken_back_is_not_written_by_the_close() {
    let read = std::env::temp_dir().join(format!("mcpvisor-taken-back-{}", std::process::id()));
    let on_call = format!(
        r#"say "$line" >> {}; answer "$id" '{{"content":[]}}'"#,
        read.display()
    );
    let _ = std::fs::remove_file(&read);
    for round in 0..10 {
        let fleet = Fleet::start(&on_call).await;
        // The actor hands the call over and is gone before anything of it could be written.
        let call = fleet.hostile.call_tool("once", json!({ "round": round }));
        let crash = async { fleet.hostile.crash_actor() };
        let (outcome, ()) = tokio::join!(call.deadline(DEADLINE).into_future(), crash);
        // The child that had the connection has read all that it will ever read.
        fleet.runtime.shutdown(Duration::from_secs(2)).await;
        let ran = std::fs::read_to_string(&read).unwrap_or_default();
        let ran = ran.contains(&format!(r#""round":{round}"#));
        match outcome {
            Ok(_) => assert!(ran),
            Err(error) if error.known() == Known::NotSent => assert!(!ran, "{error}"),
            Err(error) => assert_eq!(error.known(), Known::Unknown, "{error}"),
        }
    }
    let _ = std::fs::remove_file(&read);
}
