//! A tokio runtime without a required driver is rejected, and the program survives.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mcpvisor::{
    Config, ControlError, MissingDriver, Runtime, ServerChange, ServerConfig, StartError, Transport,
};
use tokio::runtime::Builder;

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn stdio() -> ServerConfig {
    ServerConfig::new("child", Transport::stdio("cat")).unwrap()
}

fn in_process() -> ServerConfig {
    ServerConfig::new("here", Transport::channel(|_| async {})).unwrap()
}

/// One test, because the panic hook is global.
#[test]
fn a_runtime_without_a_driver_is_refused_and_the_panic_hook_is_left_alone() {
    std::panic::set_hook(Box::new(|_| {
        PANICS.fetch_add(1, Ordering::SeqCst);
    }));
    let builders: [fn() -> Builder; 2] = [Builder::new_current_thread, || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1);
        builder
    }];
    for builder in builders {
        let without_time = builder().enable_io().build().unwrap();
        for server in [stdio(), in_process()] {
            let start = Runtime::builder().server(server).start();
            let refused = without_time.block_on(start).unwrap_err();
            let missing = matches!(refused, StartError::MissingDriver(MissingDriver::Time));
            assert!(missing, "{refused:?}");
            let said = refused.to_string();
            assert!(said.contains("time driver"), "{said}");
            assert!(said.contains("enable_all()"), "{said}");
        }

        let without_io = builder().enable_time().build().unwrap();
        let start = Runtime::builder().server(stdio()).start();
        let refused = without_io.block_on(start).unwrap_err();
        let missing = matches!(refused, StartError::MissingDriver(MissingDriver::Io));
        assert!(missing, "{refused:?}");
        assert!(refused.to_string().contains("enable_all()"), "{refused}");
        // In-process servers need no I/O.
        without_io.block_on(async {
            let start = Runtime::builder().server(in_process()).start();
            let runtime = start.await.unwrap();
            let before = runtime.server("here").unwrap().status().transport;
            let refused = runtime.add(stdio()).await.unwrap_err();
            let missing = matches!(refused, ControlError::MissingDriver { .. });
            assert!(missing, "{refused:?}");
            let other = ServerConfig::new("here", Transport::stdio("cat")).unwrap();
            let report = runtime.reload(Config::new().server(other)).await.unwrap();
            let here = report.server("here").unwrap();
            assert_eq!(here.change, ServerChange::Kept);
            let problem = here.problem.as_deref().unwrap();
            assert!(problem.contains("enable_all()"), "{problem}");
            let transport = runtime.server("here").unwrap().status().transport;
            assert_eq!(transport, before, "it goes on as it was");
            runtime.shutdown(Duration::from_secs(5)).await;
        });

        let complete = builder().enable_all().build().unwrap();
        complete.block_on(async {
            let fleet = Runtime::builder().server(stdio()).server(in_process());
            let runtime = fleet.start().await.unwrap();
            runtime.shutdown(Duration::from_secs(5)).await;
        });
    }
    // Each rejection is one failed probe; a complete runtime has none.
    let refused = PANICS.load(Ordering::SeqCst);
    assert_eq!(
        refused,
        2 * 5,
        "three refused starts, one refused server and one refused change"
    );
    let _ = std::panic::catch_unwind(|| std::panic::panic_any(()));
    assert_eq!(
        PANICS.load(Ordering::SeqCst),
        refused + 1,
        "the hook is in place"
    );
}
