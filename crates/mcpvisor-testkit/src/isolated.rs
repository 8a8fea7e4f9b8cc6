//! Runs one test in its own process.
//!
//! `cargo test` runs the tests of one file concurrently in one process, so descriptors, children
//! and memory that one test counts may belong to another. [`in_own_process`] starts the test binary
//! again for a single test. The counting itself is in [`crate::leaks`].

use std::future::Future;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

/// Tells the second process which test it runs.
const VARIABLE: &str = "MCPVISOR_TEST_ISOLATED";

/// The exit code of a test that timed out.
const OUT_OF_TIME: i32 = 124;

/// Runs `test` in its own process, on a tokio runtime with two workers. Fails if the test fails.
///
/// `name` is the path of the calling test inside its binary, as shown by `cargo test -- --list`.
/// The caller is a plain `#[test]`.
///
/// # Panics
///
/// When the test fails, does not exist under that name, or takes longer than `deadline`.
#[track_caller]
pub fn in_own_process<F: Future>(name: &str, deadline: Duration, test: impl FnOnce() -> F) {
    if std::env::var(VARIABLE).is_ok_and(|wanted| wanted == name) {
        return run_here(deadline, test);
    }
    let (status, output) = run_again(name);
    if status.code() == Some(OUT_OF_TIME) {
        panic!("{name} was not done within {deadline:?}:\n{output}");
    }
    assert!(
        status.success(),
        "{name} failed in its own process:\n{output}"
    );
    // A misspelt name would run no test and succeed.
    assert!(
        output.contains("1 passed"),
        "there is no test {name}:\n{output}"
    );
    show(name, &output);
}

fn run_here<F: Future>(deadline: Duration, test: impl FnOnce() -> F) {
    let (done, watched) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Timeout) {
            std::process::exit(OUT_OF_TIME);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => drop(runtime.block_on(test())),
        Err(error) => panic!("no runtime: {error}"),
    }
    drop(done);
}

/// Prints the output of the test, without the lines of the harness.
#[allow(clippy::print_stdout, reason = "what a test prints is for its reader")]
fn show(name: &str, output: &str) {
    for line in output.lines() {
        // The first line that a test prints follows its name.
        let said = line.strip_prefix(&format!("test {name} ... "));
        let said = said.unwrap_or(line);
        let added = ["", "ok", "running 1 test"].contains(&said);
        if !added && !said.starts_with("test result: ") {
            println!("{said}");
        }
    }
}

fn run_again(name: &str) -> (ExitStatus, String) {
    let output = std::env::current_exe().and_then(|binary| {
        Command::new(binary)
            .args([name, "--exact", "--include-ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .env(VARIABLE, name)
            .output()
    });
    match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].map(|bytes| text_of(&bytes));
            (output.status, text.join("\n"))
        }
        Err(error) => panic!("the test binary cannot be started again: {error}"),
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn another_process_runs_the_test() {
        let name = "isolated::tests::another_process_runs_the_test";
        in_own_process(name, DEADLINE, || async {
            assert_eq!(std::env::var(VARIABLE).unwrap(), name);
        });
    }

    #[test]
    #[should_panic(expected = "there is no test isolated::tests::misspelt")]
    fn a_misspelt_name_is_noticed() {
        in_own_process("isolated::tests::misspelt", DEADLINE, || async {});
    }

    #[test]
    fn a_failure_and_a_hang_over_there_fail_here() {
        for (name, wanted) in [
            ("isolated::tests::fails_when_isolated", "failed in its own"),
            (
                "isolated::tests::hangs_when_isolated",
                "was not done within",
            ),
        ] {
            let failure = std::panic::catch_unwind(|| {
                in_own_process(name, DEADLINE, || async {});
            });
            let message = failure.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn fails_when_isolated() {
        assert!(std::env::var(VARIABLE).is_err(), "on purpose");
    }

    #[test]
    fn hangs_when_isolated() {
        if std::env::var(VARIABLE).is_ok() {
            run_here(Duration::from_millis(100), std::future::pending::<()>);
        }
    }
}
