from webhook.model.fields import FieldError


def test_an_error_that_quotes_a_long_text_leaves_out_the_middle():
    error = FieldError("metadata.annotations[" + "a" * 5000 + "]", "not known")

    assert str(error).startswith("metadata.annotations[aaa")
    assert str(error).endswith("aaa]: not known")
    assert len(str(error)) == 1000
