//! Limits the length of what a server reports about itself.
//!
//! Every status repeats it, so it must be much shorter than the longest message.

use mcpvisor_core::machine::truncate_text;
use rmcp::model::{Icon, Implementation, ServerPeerInfo};

use crate::server::slot::ServerSlot;
use crate::unknown_fields::UNKNOWN_FIELDS;

/// The longest name, title, version, description or URL of a server, in bytes.
const MAX_FIELD: usize = 1024;

/// All icons of a server together, in bytes; further ones are dropped.
const MAX_ICONS: usize = 64 * 1024;

/// The longest instructions, in bytes: many pages, since a model reads them.
const MAX_INSTRUCTIONS: usize = 64 * 1024;

/// The members that rmcp does not model together, in bytes; more are dropped.
const MAX_UNKNOWN: usize = 16 * 1024;

/// Removes secrets that the server repeats, such as the token of the handshake.
pub(super) fn redact(info: &mut ServerPeerInfo, slot: &ServerSlot) {
    let redact = |text: &mut String| *text = slot.redact(&**text).into_owned();
    info.instructions.as_mut().map(redact);
    if let Some(server) = &mut info.server_info {
        redact(&mut server.name);
        redact(&mut server.version);
        let optional = [
            &mut server.title,
            &mut server.description,
            &mut server.website_url,
        ];
        optional.into_iter().flatten().for_each(redact);
    }
}

pub(super) fn truncate(info: &mut ServerPeerInfo) {
    if let Some(instructions) = &mut info.instructions {
        truncate_text(instructions, MAX_INSTRUCTIONS);
    }
    if let Some(server) = &mut info.server_info {
        truncate_server(server);
    }
    if let Some(meta) = &mut info.meta
        && let Some(unknown) = meta.get(UNKNOWN_FIELDS)
        && unknown.to_string().len() > MAX_UNKNOWN
    {
        meta.remove(UNKNOWN_FIELDS);
    }
}

fn truncate_server(server: &mut Implementation) {
    truncate_text(&mut server.name, MAX_FIELD);
    truncate_text(&mut server.version, MAX_FIELD);
    let optional = [
        &mut server.title,
        &mut server.description,
        &mut server.website_url,
    ];
    for field in optional.into_iter().flatten() {
        truncate_text(field, MAX_FIELD);
    }
    if let Some(icons) = &mut server.icons {
        let mut capacity = MAX_ICONS;
        // A truncated icon is useless, so it is dropped.
        icons.retain(|icon| match capacity.checked_sub(size(icon)) {
            Some(left) => {
                capacity = left;
                true
            }
            None => false,
        });
    }
}

fn size(icon: &Icon) -> usize {
    let sizes = icon.sizes.iter().flatten().map(String::len);
    let kind = icon.mime_type.as_ref().map_or(0, String::len);
    // An empty icon takes memory too.
    size_of::<Icon>() + icon.src.len() + kind + sizes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icons_beyond_the_limit_are_dropped_whole() {
        let icon = |bytes: usize| Icon::new("x".repeat(bytes));
        let mut server = Implementation::new("a", "1");
        server.icons = Some(vec![icon(100), icon(MAX_ICONS), icon(200)]);
        truncate_server(&mut server);
        let left: Vec<usize> = server
            .icons
            .iter()
            .flatten()
            .map(|it| it.src.len())
            .collect();
        assert_eq!(left, [100, 200]);
    }
}
