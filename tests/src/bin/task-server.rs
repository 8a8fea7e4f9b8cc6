//! A server whose tools run as tasks.

fn main() -> std::io::Result<()> {
    mcpvisor_testkit::task_server::main()
}
