use super::*;

fn parse(value: &str) -> Challenge {
    Challenge::parse([value])
}

fn scopes(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|&scope| scope.to_owned()).collect())
}

#[test]
fn the_example_of_rfc_9728_is_read() {
    let challenge = parse(
        r#"Bearer resource_metadata="https://resource.example.com/.well-known/oauth-protected-resource""#,
    );
    assert_eq!(
        challenge,
        Challenge {
            resource_metadata: Some(
                "https://resource.example.com/.well-known/oauth-protected-resource".to_owned()
            ),
            ..Challenge::default()
        }
    );
}

#[test]
fn the_step_up_example_of_the_mcp_specification_is_read() {
    let challenge = parse(
        r#"Bearer error="insufficient_scope", scope="files:read files:write", resource_metadata="https://h/m", error_description="Additional file write permission required""#,
    );
    assert_eq!(
        challenge,
        Challenge {
            resource_metadata: Some("https://h/m".to_owned()),
            scopes: scopes(&["files:read", "files:write"]),
            error: Some("insufficient_scope".to_owned()),
            error_description: Some("Additional file write permission required".to_owned()),
            binding: BindingDemand::None,
        }
    );
    assert!(challenge.needs_step_up());
}

#[test]
fn commas_and_escapes_stay_inside_quoted_strings() {
    let challenge = parse(
        r#"Bearer realm="a, Basic scope=\"evil\"", error_description="say \"no\", then \\", scope="x""#,
    );
    assert_eq!(challenge.scopes, scopes(&["x"]));
    assert_eq!(
        challenge.error_description.as_deref(),
        Some(r#"say "no", then \"#)
    );
}

#[test]
fn a_parameter_name_inside_a_quoted_string_is_no_parameter() {
    let challenge =
        parse(r#"Bearer realm="resource_metadata=https://evil.example/, scope=admin", error="e""#);
    assert_eq!(challenge.resource_metadata, None);
    assert_eq!(challenge.scopes, None);
    assert_eq!(challenge.error.as_deref(), Some("e"));
}

#[test]
fn only_the_bearer_challenge_of_a_line_counts() {
    let challenge = parse(
        r#"Basic realm="b", scope="basic", Negotiate YWJj==, Bearer scope="bearer", Digest scope="digest""#,
    );
    assert_eq!(challenge.scopes, scopes(&["bearer"]));
}

#[test]
fn several_lines_are_read() {
    let challenge = Challenge::parse(["Negotiate", "Basic realm=x", r#"Bearer scope="a""#]);
    assert_eq!(challenge.scopes, scopes(&["a"]));
}

#[test]
fn a_scheme_of_one_line_does_not_reach_into_the_next() {
    let challenge = Challenge::parse(["Bearer", r#"scope="a""#]);
    assert_eq!(challenge, Challenge::default());
}

#[test]
fn schemes_and_names_ignore_case() {
    assert_eq!(parse(r#"BEARER Scope="a""#).scopes, scopes(&["a"]));
}

#[test]
fn spaces_around_the_equals_sign_are_allowed() {
    let challenge = parse("Bearer scope\t= \"a b\" , error =  invalid_token");
    assert_eq!(challenge.scopes, scopes(&["a", "b"]));
    assert_eq!(challenge.error.as_deref(), Some("invalid_token"));
}

#[test]
fn the_first_of_duplicates_wins() {
    let challenge = Challenge::parse([
        r#"Bearer scope="a", scope="b", error="one""#,
        r#"Bearer error="two", resource_metadata="https://h/m""#,
    ]);
    assert_eq!(challenge.scopes, scopes(&["a"]));
    assert_eq!(challenge.error.as_deref(), Some("one"));
    assert_eq!(challenge.resource_metadata.as_deref(), Some("https://h/m"));
}

#[test]
fn a_token68_is_no_parameter_and_ends_at_the_comma() {
    let challenge = parse(r#"Bearer c2NvcGU9, scope="a""#);
    assert_eq!(challenge.scopes, scopes(&["a"]));
    assert_eq!(parse("Bearer scope=").scopes, None);
    assert_eq!(
        parse("Negotiate a/b+c==, Bearer scope=x").scopes,
        scopes(&["x"])
    );
}

#[test]
fn missing_commas_and_quotes_are_forgiven() {
    let challenge = parse("Bearer error=invalid_token resource_metadata=https://h/m?a=b, scope=x");
    assert_eq!(challenge.error.as_deref(), Some("invalid_token"));
    assert_eq!(
        challenge.resource_metadata.as_deref(),
        Some("https://h/m?a=b")
    );
    assert_eq!(challenge.scopes, scopes(&["x"]));
}

#[test]
fn an_unterminated_value_is_dropped() {
    let challenge = parse(r#"Bearer error="e", scope="a b"#);
    assert_eq!(challenge.error.as_deref(), Some("e"));
    assert_eq!(challenge.scopes, None);
    assert_eq!(parse(r#"Bearer scope="a\"#).scopes, None);
}

#[test]
fn stray_bytes_are_skipped() {
    let challenge = parse("; \"Bearer scope=evil \" ,, @ Bearer ; , scope=\"a\" \u{e9}");
    assert_eq!(challenge.scopes, scopes(&["a"]));
}

#[test]
fn an_empty_scope_names_no_scopes() {
    assert_eq!(parse(r#"Bearer scope="" "#).scopes, None);
    assert_eq!(parse(r#"Bearer scope="  ""#).scopes, None);
}

#[test]
fn a_dpop_challenge_asks_for_bound_tokens() {
    let alone = parse(r#"DPoP scope="a""#);
    assert_eq!(alone.scopes, scopes(&["a"]));
    assert_eq!(alone.binding, BindingDemand::Required);
    assert_eq!(parse("Bearer").binding, BindingDemand::None);
    // RFC 9449, 7.1
    let both = r#"Bearer, DPoP error="invalid_token", error_description="Invalid", algs="ES256""#;
    let both = parse(both);
    assert_eq!(both.binding, BindingDemand::Accepted);
    assert_eq!(both.error.as_deref(), Some("invalid_token"));
}

#[test]
fn parameters_of_bearer_count_before_those_of_dpop() {
    let both = parse(r#"DPoP scope="a", error="e", Bearer scope="b""#);
    assert_eq!(both.scopes, scopes(&["b"]));
    assert_eq!(both.error.as_deref(), Some("e"));
}

#[test]
fn other_schemes_and_no_values_are_empty() {
    assert_eq!(parse(r#"Basic realm="x""#), Challenge::default());
    assert_eq!(Challenge::parse([]), Challenge::default());
}

#[test]
fn texts_are_bounded_and_printable() {
    let value = format!(
        "Bearer error={}, error_description=\"a\tb\x07{}\"",
        "e".repeat(500),
        "d".repeat(500)
    );
    let challenge = parse(&value);
    assert_eq!(challenge.error.unwrap().len(), MAX_ERROR_CHARS);
    let description = challenge.error_description.unwrap();
    assert!(description.starts_with("a bd"), "{description}");
    assert_eq!(description.len(), MAX_DESCRIPTION_CHARS);
}

#[test]
fn values_are_bounded_in_length_and_number() {
    let long = format!("{}Bearer scope=a", " ".repeat(MAX_VALUE_BYTES));
    assert_eq!(parse(&long), Challenge::default());
    let mut many = vec!["Basic"; MAX_VALUES];
    many.push("Bearer scope=a");
    assert_eq!(Challenge::parse(many), Challenge::default());
}
