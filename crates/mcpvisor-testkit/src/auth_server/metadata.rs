//! The metadata of the authorization server.

use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::fault::AuthFault;
use super::fault_queue::Faults;
use super::service::Shared;
use super::token::{
    AUTHORIZATION_CODE, CLIENT_CREDENTIALS, DEVICE_CODE, JWT_BEARER, REFRESH_TOKEN, TOKEN_EXCHANGE,
};
use crate::http_server::WireReply;

/// Another issuer, which does not exist.
pub(super) const OTHER_ISSUER: &str = "http://127.0.0.1:1/other-issuer";

pub(super) fn answer(shared: &Shared, faults: &Faults) -> WireReply {
    WireReply::json(200, &document(shared, faults))
}

fn document(shared: &Shared, faults: &Faults) -> Value {
    let options = shared.options();
    let issuer = match faults.has(&AuthFault::WrongIssuer) {
        true => OTHER_ISSUER.to_owned(),
        false => shared.issuer(),
    };
    let advertise_iss = options.advertise_iss && !faults.has(&AuthFault::UnexpectedIss);
    let mut document = json!({
        "issuer": issuer,
        "scopes_supported": options.scopes,
        "response_types_supported": ["code"],
        "grant_types_supported": [
            AUTHORIZATION_CODE,
            REFRESH_TOKEN,
            CLIENT_CREDENTIALS,
            DEVICE_CODE,
            JWT_BEARER,
            TOKEN_EXCHANGE,
        ],
        "token_endpoint_auth_methods_supported": options.auth_methods,
        "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
        "authorization_response_iss_parameter_supported": advertise_iss,
        "client_id_metadata_document_supported": options.client_metadata_documents,
    });
    if options.dpop {
        document["dpop_signing_alg_values_supported"] = json!(["ES256"]);
    }
    if faults.has(&AuthFault::NoS256) {
        document["code_challenge_methods_supported"] = json!(["plain"]);
    } else if !faults.has(&AuthFault::NoPkce) {
        document["code_challenge_methods_supported"] = json!(["S256"]);
    }
    let endpoints = [
        ("authorization_endpoint", Endpoint::Authorize, true),
        ("token_endpoint", Endpoint::Token, true),
        (
            "registration_endpoint",
            Endpoint::Register,
            options.registration,
        ),
        ("revocation_endpoint", Endpoint::Revoke, options.revocation),
        (
            "device_authorization_endpoint",
            Endpoint::DeviceAuthorization,
            options.device,
        ),
    ];
    for (name, endpoint, offered) in endpoints {
        if offered {
            document[name] = json!(url(shared, endpoint, faults));
        }
    }
    document
}

fn url(shared: &Shared, endpoint: Endpoint, faults: &Faults) -> String {
    let origin = faults.find(|fault| match fault {
        AuthFault::EndpointsAt(origin) => Some(origin),
        _ => None,
    });
    match origin {
        Some(origin) => format!("{origin}{}", endpoint.path()),
        None if faults.has(&AuthFault::ScriptEndpoints) => {
            format!("javascript:alert('{}')", endpoint.name())
        }
        None => shared.url(endpoint),
    }
}
