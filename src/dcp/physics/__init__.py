"""What steps a model: Brax's pipelines, composed so that they cost what the contacts cost."""
