"""Job functions: definition, trace on the engine, and the session and variables that they share."""
