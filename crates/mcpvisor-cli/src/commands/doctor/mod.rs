//! `doctor`: checks the config, every server and the machine, and says what to do.

mod authorization_checks;
mod command_check;
mod examine;
mod machine_checks;
mod report;
mod server_checks;
mod socket_check;

pub(super) use examine::run;
