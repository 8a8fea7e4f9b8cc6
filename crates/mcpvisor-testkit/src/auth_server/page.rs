//! The pages for a browser.

use crate::http_server::WireReply;

/// A page with a question and the buttons `approve` and `deny`.
pub(super) fn question(text: &str, action: &str, hidden: (&str, &str)) -> WireReply {
    let (name, value) = (escaped(hidden.0), escaped(hidden.1));
    let (text, action) = (escaped(text), escaped(action));
    let form = format!(
        r#"<p>{text}</p>
<form method="post" action="{action}">
<input type="hidden" name="{name}" value="{value}">
<button type="submit" id="approve" name="decision" value="approve">Approve</button>
<button type="submit" id="deny" name="decision" value="deny">Deny</button>
</form>"#
    );
    html(&form)
}

/// A page where the user enters the code of a device.
pub(super) fn code_entry(action: &str) -> WireReply {
    let action = escaped(action);
    let form = format!(
        r#"<form method="get" action="{action}">
<label>Code <input id="user_code" name="user_code"></label>
<button type="submit" id="continue">Continue</button>
</form>"#
    );
    html(&form)
}

/// A page with a text.
pub(super) fn message(text: &str) -> WireReply {
    html(&format!("<p id=\"message\">{}</p>", escaped(text)))
}

fn html(body: &str) -> WireReply {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Test authorization server</title></head>\n<body>\n{body}\n</body></html>\n"
    );
    WireReply::new(200, "text/html; charset=utf-8", page)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
