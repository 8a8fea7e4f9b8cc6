use tokio::time::Instant;

use super::*;
use crate::grants::device::DeviceAuthorization;

fn device_response(interval: Option<u64>, expires_in: u64) -> Scripted {
    json_response(
        200,
        json!({ "device_code": "device-1", "user_code": "ABCD-EFGH", "interval": interval,
                "verification_uri": "https://as.example.com/activate",
                "verification_uri_complete": "https://as.example.com/activate?c=ABCD",
                "expires_in": expires_in }),
    )
}

/// Runs the device flow; returns its result and the seconds between polls.
async fn device_flow(
    responses: Vec<Scripted>,
    timeout: Duration,
) -> (Result<TokenResponse, AuthError>, Vec<u64>) {
    let fixture = Fixture::new(responses);
    let started = Instant::now();
    let device = DeviceAuthorization::request(&fixture.target())
        .await
        .unwrap();
    assert_eq!(device.user_code(), "ABCD-EFGH");
    let result = device.poll(&fixture.target(), timeout).await;
    let mut last = started;
    let polls = fixture.http.requests().into_iter().skip(1).map(|sent| {
        let gap = sent.at - last;
        last = sent.at;
        gap.as_secs()
    });
    (result, polls.collect())
}

#[tokio::test(start_paused = true)]
async fn a_device_is_polled_every_five_seconds_and_slower_on_demand() {
    let (result, gaps) = device_flow(
        vec![
            device_response(None, 600),
            pending("authorization_pending"),
            pending("slow_down"),
            pending("slow_down"),
            Err(HttpError::Interrupted("closed".into())),
            token(),
        ],
        Duration::from_secs(600),
    )
    .await;
    assert_eq!(result.unwrap().access.expose(), "access-1");
    assert_eq!(gaps, [5, 5, 10, 15, 30]);
}

#[tokio::test(start_paused = true)]
async fn polling_ends_when_the_code_expires_or_is_refused() {
    let wait = Duration::from_secs(3600);
    let many = |code| std::iter::repeat_with(move || pending(code)).take(1000);
    let start = |expires| std::iter::once(device_response(Some(10), expires));

    let responses = start(35).chain(many("authorization_pending")).collect();
    let (result, gaps) = device_flow(responses, wait).await;
    assert!(matches!(result, Err(AuthError::Cancelled(_))), "{result:?}");
    assert_eq!(gaps, [10, 10, 10]);

    let responses = start(1_000_000)
        .chain(many("authorization_pending"))
        .collect();
    let (result, gaps) = device_flow(responses, wait).await;
    assert!(matches!(result, Err(AuthError::Cancelled(_))), "{result:?}");
    assert_eq!(gaps.len(), 179);

    let (result, gaps) = device_flow(start(600).chain(many("expired_token")).collect(), wait).await;
    assert!(matches!(result, Err(AuthError::Cancelled(_))), "{result:?}");
    assert_eq!(gaps.len(), 1);

    let (result, gaps) = device_flow(start(600).chain(many("access_denied")).collect(), wait).await;
    assert!(
        matches!(&result, Err(AuthError::Refused { error, .. }) if error == "access_denied"),
        "{result:?}"
    );
    assert_eq!(gaps.len(), 1);
}

#[tokio::test]
async fn a_device_request_names_scope_resource_and_client() {
    let fixture = Fixture::new([device_response(None, 60)]);
    let device = DeviceAuthorization::request(&fixture.target())
        .await
        .unwrap();
    assert_eq!(device.verification_uri(), "https://as.example.com/activate");
    assert_eq!(
        device.verification_uri_complete(),
        Some("https://as.example.com/activate?c=ABCD")
    );
    assert!(!format!("{device:?}").contains("device-1"));
    assert_eq!(fixture.sent(0).url, "https://as.example.com/device");
    assert_parameters(
        &fixture.sent(0),
        &[
            ("client_id", Some("client-1")),
            ("scope", Some("read write")),
            ("resource", Some(RESOURCE)),
        ],
    );
}

#[tokio::test]
async fn an_unusable_device_response_is_an_error() {
    let request = async |response| {
        let fixture = Fixture::new([response]);
        DeviceAuthorization::request(&fixture.target())
            .await
            .unwrap_err()
    };
    let script =
        json!({ "device_code": "d", "user_code": "u", "verification_uri": "javascript:x" });
    assert!(matches!(
        request(json_response(200, script)).await,
        AuthError::Invalid(_)
    ));
    let empty = request(json_response(200, json!({}))).await;
    assert!(matches!(empty, AuthError::Refused { error, .. } if error == "invalid_response"));
    let refused = request(pending("invalid_client")).await;
    assert!(matches!(refused, AuthError::Refused { error, .. } if error == "invalid_client"));
}
