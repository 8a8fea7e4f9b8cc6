//! A browser whose user approves everything.

/// Opens a URL and follows its redirects. Returns the status of the last page.
pub(crate) async fn open_in_browser(url: String) -> u16 {
    mcpvisor_tests::provide_tls();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(url).send().await.unwrap().status().as_u16()
}
