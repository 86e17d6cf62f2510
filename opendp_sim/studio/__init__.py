"""Choose a question by clicking, see its cost, spend once (extra ``studio``)."""
