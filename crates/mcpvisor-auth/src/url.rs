//! Arithmetic on URLs: origins, well-known locations, and which schemes are secure.
