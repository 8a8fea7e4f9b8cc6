//! Output of a command: results on stdout, everything else on stderr.

mod action_text;
mod attachments;
pub(crate) mod content;
mod diagnostic;

mod printable;
pub(crate) mod progress;
pub(crate) mod server_notes;
mod streams;
mod suggest_command;
mod table;
mod text_format;
mod wrap;

pub(crate) use action_text::{
    action_text, after_command, sentence, status_action, with_action_text,
};
pub(crate) use attachments::{Attachments, probe_writable};
pub(crate) use diagnostic::Diagnostic;

pub(crate) use printable::{printable, printable_json, printable_lines};
pub(crate) use streams::{Output, counted};
pub(crate) use suggest_command::{remember_config, suggest_command, suggest_name};
pub(crate) use table::Table;
pub(crate) use text_format::{ColorMode, TextFormat, is_dumb, paint, state_color};
pub(crate) use wrap::{cut, hanging_indent, quote_server_line};
