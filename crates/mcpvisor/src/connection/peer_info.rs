//! What a server says of itself, cut to what may be kept and shown.
//!
//! It is repeated in every status, so a server must not make it as long as a line may be.

use mcpvisor_core::machine::truncate_text;
use rmcp::model::{Icon, Implementation, ServerPeerInfo};

/// The longest name, title, version, description or address of a server, in bytes.
const MAX_WORD: usize = 1024;

/// All icons of a server together, in bytes; those that go beyond are left out.
const MAX_ICONS: usize = 64 * 1024;

/// The longest instructions, in bytes. They are for a model to read, so there is room for many pages.
const MAX_INSTRUCTIONS: usize = 64 * 1024;

/// Cuts what is too long.
pub(super) fn shorten(info: &mut ServerPeerInfo) {
    if let Some(instructions) = &mut info.instructions {
        truncate_text(instructions, MAX_INSTRUCTIONS);
    }
    if let Some(server) = &mut info.server_info {
        shorten_server(server);
    }
}

fn shorten_server(server: &mut Implementation) {
    truncate_text(&mut server.name, MAX_WORD);
    truncate_text(&mut server.version, MAX_WORD);
    let optional = [
        &mut server.title,
        &mut server.description,
        &mut server.website_url,
    ];
    for word in optional.into_iter().flatten() {
        truncate_text(word, MAX_WORD);
    }
    if let Some(icons) = &mut server.icons {
        let mut room = MAX_ICONS;
        // One that is cut is none, so it goes as a whole.
        icons.retain(|icon| match room.checked_sub(size(icon)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        });
    }
}

fn size(icon: &Icon) -> usize {
    let sizes = icon.sizes.iter().flatten().map(String::len);
    let kind = icon.mime_type.as_ref().map_or(0, String::len);
    // An icon without anything in it takes room too.
    size_of::<Icon>() + icon.src.len() + kind + sizes.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icons_that_find_no_room_are_left_out_whole() {
        let icon = |bytes: usize| Icon::new("x".repeat(bytes));
        let mut server = Implementation::new("a", "1");
        server.icons = Some(vec![icon(100), icon(MAX_ICONS), icon(200)]);
        shorten_server(&mut server);
        let left: Vec<usize> = server
            .icons
            .iter()
            .flatten()
            .map(|it| it.src.len())
            .collect();
        assert_eq!(left, [100, 200]);
    }
}
