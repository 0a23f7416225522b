"""The application: command line, app shell, live feed, shared widgets and the registry of actions.

It reads the engine through queries, changes it through actions, and keeps none of its state.
"""
