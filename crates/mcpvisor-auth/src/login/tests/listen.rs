use tokio::net::TcpListener;

use super::*;

fn registered_at(redirect_uri: &str) -> ClientRecord {
    ClientRecord {
        redirect_uri: Some(redirect_uri.to_owned()),
        ..client(ClientAuthMethod::None)
    }
}

#[tokio::test]
async fn a_registration_keeps_its_port_unless_it_is_busy() {
    let fixture = Fixture::new([]);
    let (listener, uri) = fixture.login().listen(None).await.unwrap();
    let busy = fixture
        .login()
        .listen(Some(&registered_at(&uri)))
        .await
        .unwrap();
    assert_ne!(busy.1, uri);
    drop(listener);
    let (_listener, again) = fixture
        .login()
        .listen(Some(&registered_at(&uri)))
        .await
        .unwrap();
    assert_eq!(again, uri);
    let configured = ClientRecord {
        source: ClientSource::Configured,
        ..registered_at("http://127.0.0.1:9/callback")
    };
    let address = ListenAddress::new(None, None).unwrap();
    assert_eq!(earlier_address(&address, &configured), None);
    let other_path = registered_at("http://127.0.0.1:9/other");
    assert_eq!(earlier_address(&address, &other_path), None);
}

#[tokio::test]
async fn a_busy_fixed_port_says_what_to_do() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let fixture = Fixture::new([]);
    let mut login = fixture.login();
    login.config.callback_port = Some(port);
    let error = login.listen(None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("port {port} is in use; end the program that uses it or configure another port")
    );
    let (listener, uri) = login.without_listener().listen(None).await.unwrap();
    assert!(listener.is_none());
    assert_eq!(uri, format!("http://127.0.0.1:{port}/callback"));
}

#[tokio::test]
async fn a_redirect_uri_elsewhere_needs_no_listener() {
    let fixture = Fixture::new([]);
    let mut login = fixture.login();
    login.config.redirect_uri = Some("https://app.example.com/cb".into());
    let (listener, uri) = login.listen(None).await.unwrap();
    assert!(listener.is_none());
    assert_eq!(uri, "https://app.example.com/cb");
    let (listener, uri) = fixture
        .login()
        .without_listener()
        .listen(None)
        .await
        .unwrap();
    assert!(listener.is_none());
    assert!(
        uri.starts_with("http://127.0.0.1:") && !uri.contains(":0/"),
        "{uri}"
    );
}
