//! What `call`, `prompt` and `read` share: target, arguments, deadlines, and the request itself.

pub(crate) mod args_input;
pub(crate) mod arguments;
pub(crate) mod deadlines;
pub(crate) mod server_ready;
pub(crate) mod single_request;
pub(crate) mod target;
