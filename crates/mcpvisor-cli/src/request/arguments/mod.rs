//! Arguments of a call: parsing, typing by the tool's schema, and checking against it.

mod call_arguments;
mod exact_integers;
mod schema_check;
mod typed_value;

pub(crate) use call_arguments::Arguments;
pub(crate) use schema_check::usage;
