"""`/ui`: pages for people, rendered here; htmx and a script of ours spare them the reloading."""
