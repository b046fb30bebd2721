"""The live server and its page: audio over a WebSocket, text as it becomes known and as it changes. See docs/live.md.

Two processes: one speaks with clients and computes nothing, the other recognises and speaks with nobody else, so that
neither keeps the other waiting.
"""
